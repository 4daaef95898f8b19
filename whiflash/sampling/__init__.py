"""Exact sampling: processors, keyed noise, acceptance, stops. docs/lossless.md is the contract."""
