"""What a person reads when something goes wrong: one line that says what to do."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path

import typer

from whiflash.config import read_environment
from whiflash.core.errors import WhiFlashError

FAULT, USAGE, INTERRUPTED = 1, 2, 130


def exit_status(error: BaseException) -> int:
    """2 for what the caller can mend, 130 for Ctrl-C, 1 for our own faults."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAULT
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return 0
    return USAGE if _mendable(error) else FAULT


def report(error: BaseException) -> None:
    """Prints the line, on standard error; nothing for an orderly exit or a closed pipe."""
    if isinstance(error, BrokenPipeError):
        # Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if isinstance(error, SystemExit | typer.Exit):
        return
    if read_environment("WHIFLASH_TRACEBACK"):
        traceback.print_exception(error)
    print(f"whiflash: {describe(error)}", file=sys.stderr)


def describe(error: BaseException) -> str:
    """The error as one line."""
    return " ".join(_message(error).split())


def _mendable(error: BaseException) -> bool:
    known = (WhiFlashError, typer.TyperException, OSError, MemoryError)
    return isinstance(error, known) or _is_device_memory(error)


def _is_device_memory(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "out of memory" in text or "not enough memory" in text
    )


def _message(error: BaseException) -> str:
    match error:
        case WhiFlashError():
            return str(error)
        case typer.TyperException():
            return _usage_message(error)
        case OSError():
            return _os_message(error)
        case KeyboardInterrupt() | typer.Abort():
            return "interrupted"
        case MemoryError():
            return "out of memory; lower --memory or the context limit, or use a smaller model"
    if _is_device_memory(error):
        return "out of device memory; lower --memory or the context limit, or use a smaller model"
    return (
        f"internal error, please report it: {type(error).__name__}: {error} "
        "(WHIFLASH_TRACEBACK=1 shows where)"
    )


def _usage_message(error: typer.TyperException) -> str:
    format_message = getattr(error, "format_message", None)
    message = str(format_message() if format_message else error).strip().rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "whiflash"
    return f"{message}; see: {path} --help"


def _os_message(error: OSError) -> str:
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    name = f" ({path})" if path else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full{name}; free some space" + _moved(path, "another disk")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"no permission{name}; change it" + _moved(path, "a folder of yours")
    return f"{error.strerror or error}{name}"


def _moved(path: str, where: str) -> str:
    """How to have the path elsewhere: the variable of the folder that it is in, if it is in one of
    ours, else the command itself names it."""
    from whiflash.models.sources import cache_folder
    from whiflash.trajectories.file_log import default_folder

    if not path:
        return ""
    place = Path(path).absolute()
    folders = {"WHIFLASH_CACHE": cache_folder(), "WHIFLASH_DATA": default_folder().parent}
    for variable, folder in folders.items():
        if place.is_relative_to(folder.absolute()):
            return f", or set {variable} to {where}"
    return ", or name another path"
