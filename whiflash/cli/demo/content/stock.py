"""Counting stock: a call with two fields, then one sentence."""

from whiflash.cli.demo.scenarios import Example, Kind, Scenario, tool_call
from whiflash.cli.demo.tools import World


def _ask(item: str, pieces: int) -> str:
    return f"Counted today: {item}, {pieces} pieces."


def _example(item: str, before: int, pieces: int) -> Example:
    return Example(
        _ask(item, pieces),
        (tool_call("set_stock", item=item, pieces=pieces),),
        f"The stock of {item} was {before} and is now {pieces} pieces.",
    )


KIND = Kind(
    name="stock",
    system="You keep the stock list of a workshop.",
    tools=("set_stock",),
    examples=(
        _example("hex nut", 280, 310),
        _example("steel washer", 120, 95),
        _example("roof nail", 900, 870),
        _example("door spring", 14, 16),
    ),
    world=World(stock={"hex nut": 280, "steel washer": 120, "roof nail": 900, "door spring": 14}),
)

FIRST = Scenario(
    "stock",
    KIND,
    (_ask("wood screw", 450), _ask("cable tie", 75)),
    World(stock={"wood screw": 500, "cable tie": 130}),
)
SECOND = Scenario(
    "stock, other items",
    KIND,
    (_ask("lock nut", 260), _ask("drill bit", 34)),
    World(stock={"lock nut": 300, "drill bit": 40}),
)
