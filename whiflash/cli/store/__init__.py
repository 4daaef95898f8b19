"""`whiflash store`: what those who keep a trajectory store do with it."""
