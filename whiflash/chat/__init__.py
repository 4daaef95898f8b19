"""Chat templates and the parsers of what models write. Pure: no torch, no network."""
