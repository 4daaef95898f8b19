"""Append-only segment files in a folder: the durable log of one machine."""

from whiflash.trajectories.file_log.log import FileLog, default_folder

__all__ = ["FileLog", "default_folder"]
