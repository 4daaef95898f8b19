"""Which arm a row drafts with, and how much: costs, price, joint choice, trim, policies."""
