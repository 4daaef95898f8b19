"""What the demo prints of its arms."""

from __future__ import annotations

import io

from rich.console import Console

from whiflash.cli.demo.results import PassResult
from whiflash.cli.demo.show import DemoScreen
from whiflash.core.usage import ArmUsage


def _result(**arms: ArmUsage) -> PassResult:
    return PassResult("cold", "cold", 0, 9, 5, arms, 1.0, 2.0, 0, {}, {})


def test_the_legend_names_every_arm_and_the_table_adds_up_what_each_wrote() -> None:
    told = io.StringIO()
    screen = DemoScreen(Console(file=told, width=200))
    screen.legend(["retrieval", "eagle3", "dflash"])
    screen.table(
        [
            _result(none=ArmUsage(rounds=3, emitted=3), eagle3=ArmUsage(rounds=2, emitted=3)),
            _result(eagle3=ArmUsage(rounds=2, emitted=5), dflash=ArmUsage(rounds=1, emitted=2)),
        ]
    )
    lines = told.getvalue().splitlines()
    assert "(retrieval, eagle3, dflash)" in lines[0]
    assert "tokens by arm: none 3 (AL 1.00), eagle3 8 (AL 2.00), dflash 2 (AL 2.00)" in lines
