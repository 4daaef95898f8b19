"""Generated from protos/whiflash/rpc/v1 by protos/generate.py."""
