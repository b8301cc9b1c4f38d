"""What the loader and the kernel read in an ELF file."""
