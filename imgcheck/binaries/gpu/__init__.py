"""Fatbins, cubins, the CUDA runtime and driver evidence in one file."""
