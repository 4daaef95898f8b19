"""Sequences, scheduling and the round loop."""
