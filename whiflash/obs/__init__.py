"""What a run leaves behind for people: logs and, later, metrics."""
