"""Generated from protos/whiflash/api/v1 by protos/generate.py."""
