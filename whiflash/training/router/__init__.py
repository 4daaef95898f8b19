"""Routers learned from logged rounds."""
