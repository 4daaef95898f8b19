"""Sums with steps. A small target gets them wrong; its text is what is drafted all the same."""

from __future__ import annotations

from typing import Final

from whiflash.training.data.filler import Filler, Task, Template
from whiflash.training.data.pools import CITIES, NAMES, PRODUCTS

_STEPS = ("Show your steps.", "Think step by step.", "Explain each step.", "Give the result at "
          "the end.", "")  # fmt: skip


def _asked(f: Filler, text: str) -> Task:
    return Task.ask(f"{text} {f.one_of(*_STEPS)}".strip())


def _shopping(f: Filler) -> Task:
    name, first, second = f.pick(NAMES), *f.some(PRODUCTS, 2)
    return _asked(
        f,
        f"{name} buys {f.number(2, 12)} pieces of {first} for {f.number(2, 40)} euros each and "
        f"{f.number(2, 9)} pieces of {second} for {f.number(3, 60)} euros each. How much does "
        f"{name} pay?",
    )


def _speed(f: Filler) -> Task:
    start, end = f.some(CITIES, 2)
    return _asked(
        f,
        f"A train from {start} to {end} covers {f.number(8, 90) * 10} kilometres at "
        f"{f.number(6, 20) * 10} kilometres per hour. How long does it take?",
    )


def _sharing(f: Filler) -> Task:
    name = f.pick(NAMES)
    return _asked(
        f,
        f"{name} has {f.number(20, 200)} {f.one_of('apples', 'marbles', 'stamps', 'cards')} and "
        f"shares them among {f.number(3, 12)} friends. How many does each one get, and how many "
        "are left over?",
    )


def _percent(f: Filler) -> Task:
    return _asked(
        f,
        f"The price of a {f.pick(PRODUCTS)} is {f.number(20, 400)} euros. It is "
        f"{f.one_of('reduced', 'raised')} by {f.number(1, 18) * 5} percent. What is the new price?",
    )


def _equation(f: Filler) -> Task:
    a, b, c = f.number(2, 12), f.number(1, 40), f.number(41, 120)
    letter = f.one_of("x", "y", "n", "t")
    return _asked(f, f"{f.pick(NAMES)} must solve {a}{letter} + {b} = {c}. What is {letter}?")


def _area(f: Filler) -> Task:
    return _asked(
        f,
        f"A garden in {f.pick(CITIES)} is {f.number(4, 60)} metres long and {f.number(3, 40)} "
        f"metres wide. {f.one_of('What is its area?', 'How long is the fence around it?')}",
    )


def _wages(f: Filler) -> Task:
    name = f.pick(NAMES)
    return _asked(
        f,
        f"{name} works {f.number(3, 9)} hours a day, {f.number(2, 6)} days a week, for "
        f"{f.number(9, 45)} euros an hour, and saves {f.number(1, 9) * 10} percent. How much does "
        f"{name} save in {f.number(2, 12)} weeks?",
    )


def _mean(f: Filler) -> Task:
    numbers = [str(f.number(1, 99)) for _ in range(f.number(4, 8))]
    return _asked(f, f"{f.pick(NAMES)} notes the numbers {', '.join(numbers)}. What is their "
                     f"{f.one_of('mean', 'median', 'sum', 'largest difference')}?")  # fmt: skip


def _ages(f: Filler) -> Task:
    old, young = f.some(NAMES, 2)
    return _asked(
        f,
        f"{old} is {f.number(2, 5)} times as old as {young}, who is {f.number(4, 19)}. How old "
        f"will {old} be in {f.number(2, 15)} years?",
    )


def _tank(f: Filler) -> Task:
    return _asked(
        f,
        f"A tank in {f.pick(CITIES)} holds {f.number(5, 90) * 10} litres. {f.number(4, 30)} litres "
        f"a minute flow in and {f.number(1, 3)} litres flow out. When is it full?",
    )


TEMPLATES: Final[tuple[Template, ...]] = (
    _shopping, _speed, _sharing, _percent, _equation, _area, _wages, _mean, _ages, _tank,
)  # fmt: skip
