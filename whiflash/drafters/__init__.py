"""Drafters, a package each, and the registry that names them."""
