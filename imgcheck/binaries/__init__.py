"""One file's bytes to facts: linkage, instruction sets, GPU code."""
