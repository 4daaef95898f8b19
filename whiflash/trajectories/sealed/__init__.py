"""The sealed tier: old runs in suffix arrays on disk, one set of segments per namespace."""
