"""The place of an image in files apart from its name there. Imports nothing that a preflight would have to load."""

import os


def split_path(rest: str) -> tuple[str, str, str]:
    """PATH[:NAME][@DIGEST] as path, name and digest, at the last separator before which something exists.

    All three may hold colons. "-" is standard input, and what exists as a whole is a path.
    """
    if rest == "-" or os.path.exists(rest):
        return rest, "", ""
    for position in range(len(rest) - 1, 0, -1):
        if rest[position] in ":@" and _is_there(rest[:position], rest[position]):
            name, _, digest = rest[position:].partition("@")
            return rest[:position], name[1:], digest
    return rest, "", ""


def _is_there(path: str, separator: str) -> bool:
    return os.path.exists(path) or (path == "-" and separator == ":")
