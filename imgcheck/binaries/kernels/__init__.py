"""Loops in C over whole files: what decodes, or would take numpy several passes.

hatch_build.py compiles them into LIBRARY.
"""

from pathlib import Path

LIBRARY = Path(__file__).with_name("kernels.so")
