"""The trajectory store: what the target emitted in earlier runs, by namespace."""
