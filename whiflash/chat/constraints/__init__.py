"""Structured output: demands on the form of an answer become grammars over token ids."""
