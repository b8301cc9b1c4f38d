"""The instruction sets that a file's code needs, per architecture."""
