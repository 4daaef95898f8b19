"""Objectives and checkpoints of trained drafters."""
