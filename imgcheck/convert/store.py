"""Contents of files in numbered objects inside the stage: written once each, in the order they come, under no name
that an image chose. Placing the tree renames them to where they belong, after everything has been verified.
"""

import os

from imgcheck.convert.disk import CREATE_FILE, OPEN_DIRECTORY, FileWriter, open_file, set_attributes, set_xattrs
from imgcheck.convert.policy import Policy
from imgcheck.layers.entry import Entry
from imgcheck.layers.model import Content

_PER_DIRECTORY = 4096


class Store:
    """Objects of one conversion, in the directory `objects` of its stage."""

    def __init__(self, stage: int, policy: Policy) -> None:
        os.mkdir("objects", 0o700, dir_fd=stage)
        self.stage = stage
        self.policy = policy
        self.size = 0
        self._writer = FileWriter()
        self._count = 0
        self._shard = -1

    def close(self) -> None:
        if self._shard >= 0:
            os.close(self._shard)
            self._shard = -1

    def keep(self, _layer: int, _ordinal: int, entry: Entry, content: Content) -> int | None:
        """Store a file's content; its number, or None where it is empty and needs no object."""
        if not entry.size and not entry.xattrs:
            return None
        number = self._count
        self._count += 1
        fd = os.open(b"%d" % number, CREATE_FILE, 0o600, dir_fd=self._directory_of(number))
        try:
            self.size += self._writer.write(fd, content)
            if entry.xattrs:
                self.policy.lost_xattrs += set_xattrs(fd, entry.xattrs)
            set_attributes(fd, self.policy.file_mode(entry.mode), entry.mtime)
        finally:
            os.close(fd)
        return number

    def reserve(self) -> str:
        """A free name in the stage for an object that is made by other means."""
        number = self._count
        self._count += 1
        self._directory_of(number)
        return self.path(number)

    def path(self, number: int) -> str:
        """The object's path relative to the stage."""
        return f"objects/{number // _PER_DIRECTORY}/{number}"

    def read(self, number: int, limit: int) -> bytes:
        """At most `limit` bytes of an object."""
        with open_file(self.stage, self.path(number)) as file:
            return file.read(limit)

    def _directory_of(self, number: int) -> int:
        if number % _PER_DIRECTORY == 0:
            self.close()
            name = f"objects/{number // _PER_DIRECTORY}"
            os.mkdir(name, 0o700, dir_fd=self.stage)
            self._shard = os.open(name, OPEN_DIRECTORY, dir_fd=self.stage)
        return self._shard
