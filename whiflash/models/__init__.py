"""The floor under target and drafters: names, checkpoints, attention, caches, linear layers."""
