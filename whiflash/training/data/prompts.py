"""The prompts: number -> kind, split, messages, and how the target shall answer."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from whiflash.training.data.filler import Filler, Task
from whiflash.training.data.templates import TEMPLATES

TRAIN, HELD_OUT = "train", "held-out"
# Kinds in a cycle, so that any first part of the prompts holds them in these shares.
_CYCLE: Final = (
    "chat", "code", "json", "edit", "chat", "maths", "code", "tools", "chat", "json",
    "edit", "code", "chat", "maths", "tools", "json", "chat", "code", "edit", "maths",
)  # fmt: skip
# One prompt in so many is held out. It shares no factor with the cycle: every kind comes up.
_HELD_OUT_EVERY: Final = 21


@dataclass(frozen=True, slots=True)
class TrainingPrompt:
    """One prompt. temperature: 0 or 1, drawn; seed: of the target's answer."""

    number: int
    kind: str
    split: str
    task: Task
    temperature: float
    seed: int


def training_prompt(number: int, seed: int) -> TrainingPrompt:
    """Prompt `number` of the sequence that `seed` names; the same whenever it is asked for."""
    kind = _CYCLE[number % len(_CYCLE)]
    is_held_out = number % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1
    filler = Filler(f"{seed}:{number}", is_held_out=is_held_out)
    templates = TEMPLATES[kind]
    template = templates[filler.number(0, len(templates) - 1)]
    return TrainingPrompt(
        number=number,
        kind=kind,
        split=HELD_OUT if is_held_out else TRAIN,
        task=template(filler),
        temperature=float(random.Random(f"temperature:{seed}:{number}").random() < 0.5),
        seed=(seed << 32) | number,
    )
