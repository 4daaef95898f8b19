"""Measured comparisons with provenance; `whiflash bench SUITE`."""
