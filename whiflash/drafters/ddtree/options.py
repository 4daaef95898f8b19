"""What a user may set about a DDTree drafter."""

from __future__ import annotations

from dataclasses import dataclass

from whiflash.core.errors import ConfigError
from whiflash.drafters.dflash.options import DFlashOptions
from whiflash.drafters.spec import DrafterSpec, OptionReader, positive

DEFAULT_NODES = 32
_BLOCK = DFlashOptions()


@dataclass(frozen=True, slots=True)
class DDTreeOptions:
    """nodes: most nodes of a tree, where a row's own limit is not smaller. block: DFlash's own.
    Raises ConfigError."""

    nodes: int = DEFAULT_NODES
    block: DFlashOptions = _BLOCK

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ConfigError(f"ddtree needs 1 node or more, got nodes={self.nodes}")

    @classmethod
    def of_spec(cls, spec: DrafterSpec) -> DDTreeOptions:
        """From "ddtree:DIR,nodes=64,block=8". Raises ConfigError."""
        reader = OptionReader(spec)
        nodes = reader.take("nodes", DEFAULT_NODES, positive)
        options = cls(nodes, DFlashOptions.read(reader))
        reader.finish()
        return options
