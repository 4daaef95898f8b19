"""What the target thought while it wrote: taps and final hidden states, kept in shards."""
