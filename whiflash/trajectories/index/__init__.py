"""Suffix indexes over earlier runs, built from the log."""

from whiflash.trajectories.index.automaton import Automaton
from whiflash.trajectories.index.indexes import TrajectoryIndexes
from whiflash.trajectories.index.live import LiveIndex
from whiflash.trajectories.index.lookup import LookupBatch

__all__ = ["Automaton", "LiveIndex", "LookupBatch", "TrajectoryIndexes"]
