"""Policies, one file each; `registry` knows them by name."""
