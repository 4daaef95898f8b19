"""Engines in other processes: the verifier's service, and a gateway's backend over many of them."""
