"""Data plane: records as messages, channels and servers, remote drafters and policies."""
