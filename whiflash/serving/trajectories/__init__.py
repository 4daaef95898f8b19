"""The store as its keepers see it: recorded conversations in, stored turns out."""
