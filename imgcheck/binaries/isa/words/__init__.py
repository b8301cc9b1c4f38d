"""Machines whose instructions are 32-bit words: AArch64 and ppc64le."""
