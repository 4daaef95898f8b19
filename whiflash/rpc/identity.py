"""What both ends of a stream must agree on, and words for where they do not."""

from __future__ import annotations

from whiflash import __version__
from whiflash.core.protocols import Drafter, TapDrafter
from whiflash.rpc.faults import MismatchError
from whiflash.rpc.v1 import common_pb2 as pb

_FIELDS = {
    "version": "version",
    "model_fingerprint": "target",
    "tokenizer_fingerprint": "tokenizer",
    "boundaries": "boundaries",
    "weight_hash": "drafter weights",
}


def identity(
    model_fingerprint: str,
    tokenizer_fingerprint: str,
    boundaries: tuple[int, ...] = (),
    weight_hash: str = "",
) -> pb.Identity:
    """Of this version."""
    return pb.Identity(
        version=__version__,
        model_fingerprint=model_fingerprint,
        tokenizer_fingerprint=tokenizer_fingerprint,
        boundaries=boundaries,
        weight_hash=weight_hash,
    )


def drafter_identity(
    drafter: Drafter, model_fingerprint: str, tokenizer_fingerprint: str
) -> pb.Identity:
    """Of a drafter that was loaded for that target."""
    if isinstance(drafter, TapDrafter):
        return identity(
            model_fingerprint, tokenizer_fingerprint, drafter.boundaries, drafter.weight_hash
        )
    return identity(model_fingerprint, tokenizer_fingerprint)


def check_identity(mine: pb.Identity, theirs: pb.Identity, what: str) -> None:
    """Raises MismatchError naming both sides of every difference. `what` this end is."""
    differences = [
        f"{word} {_shown(getattr(theirs, field))} there, {_shown(getattr(mine, field))} here"
        for field, word in _FIELDS.items()
        if _shown(getattr(mine, field)) != _shown(getattr(theirs, field))
    ]
    if differences:
        raise MismatchError(
            f"this {what} and its caller do not fit: {'; '.join(differences)}; start both with "
            "the same version, target and weights"
        )


def _shown(value: object) -> str:
    return value if isinstance(value, str) else "+".join(str(one) for one in value)  # type: ignore[attr-defined]
