"""A drafter as it is named on the command line: kind:FOLDER,option=value,..."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from whiflash.core.errors import ConfigError

Value = TypeVar("Value")
_OPTION = re.compile(r"[a-z_]+=[^,=]*")


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """kind: the registry's name; place: folder or hub name, "" where the kind needs none."""

    kind: str
    place: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> DrafterSpec:
        """Like "retrieval", "eagle3,tree=chain" or "eagle3:DIR,tree=chain,depth=5". Options stand
        behind the folder, which may hold commas of its own. Raises ConfigError on an option given
        twice."""
        kind = re.split("[:,]", text, maxsplit=1)[0]
        rest = text[len(kind) :].removeprefix(":")
        parts = rest.split(",")
        options: dict[str, str] = {}
        while len(parts) > 1 and _OPTION.fullmatch(parts[-1].strip()):
            key, _, value = parts.pop().strip().partition("=")
            if key in options:
                raise ConfigError(f"drafter {text!r} gives the option {key} twice")
            options[key] = value
        return cls(kind.strip(), ",".join(parts).strip(), options)


class OptionReader:
    """Takes options one by one; `finish` refuses those that nobody took."""

    def __init__(self, spec: DrafterSpec) -> None:
        self._kind = spec.kind
        self._left = dict(spec.options)
        self._known: list[str] = []

    def take(self, key: str, default: Value, parse: Callable[[str], Value]) -> Value:
        """The option's value. Raises ConfigError if `parse` does not accept it."""
        self._known.append(key)
        text = self._left.pop(key, None)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise ConfigError(f"drafter {self._kind}: {key}={text}: {error}") from error

    def finish(self) -> None:
        """Raises ConfigError, naming all options there are."""
        if self._left:
            raise ConfigError(
                f"drafter {self._kind} has no option {min(self._left)!r}; its options are: "
                f"{', '.join(self._known)}"
            )


def positive(text: str) -> int:
    """A count of at least 1. Raises ValueError."""
    if not text.isdigit() or int(text) < 1:
        raise ValueError("must be a whole number of at least 1")
    return int(text)


def one_of(*choices: str) -> Callable[[str], str]:
    """Accepts one of some words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return parse


def share(text: str) -> float:
    """A number in (0, 1]. Raises ValueError."""
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError("must lie in (0, 1]")
    return value
