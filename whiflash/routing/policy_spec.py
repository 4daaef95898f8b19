"""A policy as it is named on the command line: name:option=value,..."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from whiflash.core.errors import ConfigError

_NEXT_OPTION = re.compile(r",(?=\s*[a-z_]+=)")
_OPTION = re.compile(r"\s*([a-z_]+)=(.*)")
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """name: the registry's; options: as written."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> PolicySpec:
        """Like "goodput" or "entropy:tau=1.2,trim=yes". A value may hold commas that begin no
        option. Raises ConfigError on a part that is no option, or one given twice."""
        name, has_options, rest = text.partition(":")
        options: dict[str, str] = {}
        for part in _NEXT_OPTION.split(rest) if has_options else ():
            match = _OPTION.fullmatch(part)
            if match is None:
                raise ConfigError(f"policy {text!r}: write {part!r} as option=value")
            if match[1] in options:
                raise ConfigError(f"policy {text!r} gives the option {match[1]} twice")
            options[match[1]] = match[2].strip()
        return cls(name.strip(), options)

    def typed(self, kinds: Mapping[str, object]) -> dict[str, object]:
        """The options as what they are declared as in `kinds`; one that is not in it stays text.
        Raises ConfigError on a value of another kind."""
        return {key: self._value(key, text, kinds.get(key)) for key, text in self.options.items()}

    def _value(self, key: str, text: str, kind: object) -> object:
        for known, parse in _PARSERS.items():
            if kind in (known, known | None):
                try:
                    return parse(text)
                except ValueError as error:
                    raise ConfigError(f"policy {self.name}: {key}={text}: {error}") from None
        return text


def _bool(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError("must be yes or no")
    return _WORDS[text.lower()]


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


_PARSERS: Mapping[type, Callable[[str], object]] = {bool: _bool, int: _int, float: _float}
