"""What files with libraries inside have in common, whatever packs them: how far they are believed."""

from collections.abc import Callable, Iterator

from imgcheck.layers.entry import Entry
from imgcheck.layers.model import Content

Read = Callable[[int, int], bytes]
"""(size, offset) -> bytes of a file."""
Found = Iterator[tuple[str, str]]
"""The path inside of each library, and the key of its facts."""
Take = Callable[[Entry, bytes, Content], str]
"""Has a file analysed, given its first bytes and the others; the key of its facts (profile.analysis.Analysis.take)."""

_EXPANSION = 64
"""Times the size of a file that the libraries in it may have: code is compressed to a third."""


class ArchiveError(Exception):
    """A file that asks for more than a real one does; the message says why."""


class Allowance:
    """How many bytes may still be unpacked from a file of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._left = size * _EXPANSION

    def take(self, size: int) -> None:
        """Count in `size` bytes. Raises ArchiveError where no real file has so many."""
        self._left -= size
        if self._left < 0:
            raise ArchiveError(f"what is in it has more than {_EXPANSION} times its size")


def is_plain(name: str) -> bool:
    """Whether the name of a member leads to one place inside, by no way round."""
    return set(name.split("/")).isdisjoint(("", ".", ".."))
