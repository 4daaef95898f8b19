"""The scenarios themselves, a file per kind of work. All of it was written for WhiFlash."""
