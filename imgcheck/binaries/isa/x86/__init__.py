"""The instruction-set engine for x86-64 and 32-bit x86."""
