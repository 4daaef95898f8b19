"""Records and protocols that every part shares. Needs only numpy."""
