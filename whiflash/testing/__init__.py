"""Helpers that only tests import: a toy model in the ordinary layout, and scripted drafters."""
