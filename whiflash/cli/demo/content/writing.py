"""Writing code and letters: no tool, and no example in the prompt, so that what comes again is the
model's own."""

from whiflash.cli.demo.scenarios import Kind, Scenario
from whiflash.cli.demo.tools import World


def _function(which: str) -> str:
    return f"Write a Python function that returns the {which} number of a list, and explain it."


def _mail(name: str, parcel: str, day: str) -> str:
    return f"Write a short email to {name}: the parcel with the {parcel} arrives on {day}."


KIND = Kind(name="writing", system="You are a helpful assistant.", tools=(), examples=())

FIRST = Scenario(
    "writing", KIND, (_function("largest"), _mail("Anna", "lamp", "Monday")), World()
)  # fmt: skip
SECOND = Scenario(
    "writing, other subjects",
    KIND,
    (_function("smallest"), _mail("Peter", "chair", "Friday")),
    World(),
)
