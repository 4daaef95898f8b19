"""What a user may set about a DFlash drafter."""

from __future__ import annotations

from dataclasses import dataclass

from whiflash.drafters.spec import DrafterSpec, OptionReader, positive
from whiflash.models.draft.boundaries import parse_boundaries


@dataclass(frozen=True, slots=True)
class DFlashOptions:
    """None leaves a setting to the checkpoint.

    block: slots of a block, the root's included, 2 up to the trained size.
    mask_id: the token that stands for "not drafted yet"; an unused row of the embedding.
    context_limit: most tokens of a sequence that is still drafted for.
    """

    block: int | None = None
    mask_id: int | None = None
    boundaries: tuple[int, ...] | None = None
    context_limit: int | None = None

    @classmethod
    def read(cls, reader: OptionReader) -> DFlashOptions:
        """Takes these options only; the caller finishes the reader. Raises ConfigError."""
        return cls(
            block=reader.take("block", None, positive),
            mask_id=reader.take("mask_id", None, token_id),
            boundaries=reader.take("boundaries", None, parse_boundaries),
            context_limit=reader.take("context_limit", None, positive),
        )

    @classmethod
    def of_spec(cls, spec: DrafterSpec) -> DFlashOptions:
        """From "dflash:DIR,block=4". Raises ConfigError on unknown options and values."""
        reader = OptionReader(spec)
        options = cls.read(reader)
        reader.finish()
        return options


def token_id(text: str) -> int:
    """Raises ValueError."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError("must be a token id")
    return int(text)
