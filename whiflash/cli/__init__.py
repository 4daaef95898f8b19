"""The command line: `whiflash VERB`."""
