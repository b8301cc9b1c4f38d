"""How wide text may be."""

import shutil

_NARROWEST, _WIDEST = 40, 500
"""rich and textwrap fail below a few columns, and rich pads every line to whatever width it is told."""


def columns(otherwise: int) -> int:
    """Columns by `COLUMNS`, else by the terminal of standard output, else `otherwise`; within reason."""
    return min(max(shutil.get_terminal_size((otherwise, 24)).columns, _NARROWEST), _WIDEST)
