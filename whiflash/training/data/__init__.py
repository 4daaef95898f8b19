"""Text to train on: prompts written for this project, and what the target answers."""
