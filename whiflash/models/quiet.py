"""Keeps the terminal of our commands free of other libraries' warnings and progress bars."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr


def quiet_libraries() -> None:
    """Only errors of transformers reach the terminal, unless TRANSFORMERS_VERBOSITY says else."""
    # A tokenizer used before a fork otherwise warns from every child process.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging

    if "TRANSFORMERS_VERBOSITY" not in os.environ:
        logging.set_verbosity_error()
    logging.disable_progress_bar()


@contextmanager
def no_stderr() -> Iterator[None]:
    """Swallows what libraries print to stderr (bars that have no switch); exceptions still pass."""
    with redirect_stderr(io.StringIO()):
        yield
