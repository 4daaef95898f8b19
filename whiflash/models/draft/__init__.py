"""The floor under neural drafters: strict checkpoints, small layers, draft K/V."""
