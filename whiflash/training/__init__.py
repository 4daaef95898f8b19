"""Training of drafters and routers for one target, on text that the target itself wrote."""
