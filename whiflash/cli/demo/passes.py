"""The two passes of the demo: the second has the same kinds of work with other fillings, so that
what was learned in the first one pays."""

from whiflash.cli.demo.content import code, rooms, settings, stock, tickets
from whiflash.cli.demo.scenarios import Scenario

_KINDS = (stock, rooms, tickets, settings, code)

FIRST_PASS: tuple[Scenario, ...] = tuple(kind.FIRST for kind in _KINDS)
SECOND_PASS: tuple[Scenario, ...] = tuple(kind.SECOND for kind in _KINDS)
