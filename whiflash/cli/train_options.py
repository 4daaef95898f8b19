"""Flags that the stages of `whiflash train` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

WorkDir = Annotated[
    Path, typer.Option("--work-dir", help="folder of all stages; give it again to go on")
]
MaxMinutes = Annotated[
    float | None,
    typer.Option("--max-minutes", min=0, help="stop cleanly then; run again to go on [no limit]"),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="same seed, same result")]
Chat = Annotated[bool, typer.Option("--chat/--no-chat", help="write prompts in a chat template")]
Boundaries = Annotated[
    str | None, typer.Option("--boundaries", help="where to tap, like 2+15+27 [2, n/2, n-3]")
]
