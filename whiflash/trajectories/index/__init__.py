"""Suffix indexes over earlier runs, built from the log."""

from whiflash.trajectories.index.automaton import Automaton
from whiflash.trajectories.index.indexes import Sealing, TrajectoryIndexes
from whiflash.trajectories.index.live import LiveIndex
from whiflash.trajectories.index.lookup import LookupBatch
from whiflash.trajectories.index.tiers import NamespaceIndex

__all__ = [
    "Automaton",
    "LiveIndex",
    "LookupBatch",
    "NamespaceIndex",
    "Sealing",
    "TrajectoryIndexes",
]
