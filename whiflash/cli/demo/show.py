"""What the demo prints: text coloured by arm, tool results, the table, the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whiflash.cli.demo.pairs import completion_of, summed_arms
from whiflash.cli.demo.results import PassResult
from whiflash.cli.demo.scenarios import Scenario
from whiflash.cli.demo.session import StepResult
from whiflash.core.rows import NONE

_COLOURS = {NONE: "default", "retrieval": "green", "eagle3": "cyan", "dflash": "magenta"}
_OTHER_COLOURS = ("yellow", "blue")


class DemoScreen:
    """Prints to `console`. Arms it has no colour for get the next free one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._colours = dict(_COLOURS)
        self._scenario: Scenario | None = None

    def heading(self, name: str) -> None:
        self._console.rule(name)

    def legend(self, arms: Sequence[str]) -> None:
        """arms: those that may draft."""
        names = Text(", ").join(Text(arm, self._colour(arm)) for arm in arms)
        self._console.print(
            Text("Coloured text came out of rounds in which drafts were accepted (")
            + names
            + Text("), several tokens at a time; plain text is one token a round.")
        )

    def step(self, scenario: Scenario, step: StepResult) -> None:
        """One generation of a drafting session, with what its calls came to."""
        if scenario is not self._scenario:
            self._scenario = scenario
            self._console.print(f"\n[bold]session: {scenario.name}[/bold]")
        if step.step == 0:
            self._console.print(Text("user  ", "bold blue") + Text(step.user))
        self._console.print(Text("model ", "bold") + self._coloured(step))
        for outcome in step.outcomes:
            style = "red" if outcome.is_error else "dim"
            self._console.print(Text("tool  ", "bold") + Text(outcome.result, style))

    def _coloured(self, step: StepResult) -> Text:
        text = Text()
        for segment in completion_of(step).segments:
            style = self._colour(segment.arm) if segment.accepted else ""
            text.append(segment.text, style)
        return text

    def _colour(self, arm: str) -> str:
        if arm not in self._colours:
            self._colours[arm] = _OTHER_COLOURS[len(self._colours) % len(_OTHER_COLOURS)]
        return self._colours[arm]

    def table(self, results: Sequence[PassResult]) -> None:
        """One line per pass; times are decode only."""
        table = Table(title="decode only, against the no-draft twin run in alternation")
        for title in ("pass", "known", "tokens", "rounds", "AL", "decode", "twin", "ratio"):
            table.add_column(title, justify="left" if title == "pass" else "right")
        for result in results:
            table.add_row(
                result.title,
                str(result.known_tokens),
                str(result.num_tokens),
                str(result.num_rounds),
                f"{result.accepted_length:.2f}",
                f"{result.decode_ms / 1e3:.2f} s",
                "-" if result.ratio is None else f"{result.twin_decode_ms / 1e3:.2f} s",
                "-" if result.ratio is None else f"{result.ratio:.2f}x",
            )
        self._console.print(table)
        self._console.print(
            "known: tokens in the store when the pass began; each process starts without any KV "
            "of another pass"
        )
        self._console.print(f"tokens by arm: {_by_arm(results)}")
        num_errors = sum(result.num_errors for result in results)
        self._console.print(f"tool calls that got an error for a result: {num_errors}")


def _by_arm(results: Sequence[PassResult]) -> str:
    """Of all passes, rounds that ended a turn left out."""
    total = summed_arms(result.arms for result in results)
    return ", ".join(
        f"{arm} {usage.emitted} (AL {usage.accepted_length:.2f})" for arm, usage in total.items()
    )
