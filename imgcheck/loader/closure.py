"""What a command reaches in an image, and what the loader would miss on the way."""

from dataclasses import dataclass, field
from typing import Literal

from imgcheck.documents.image import Reach


@dataclass(frozen=True)
class Problem:
    """Something ld.so would stop at."""

    kind: Literal["library", "version", "interpreter", "kernel", "isa"]
    path: str
    """The file that needs it."""
    needed: str
    """Soname, or interpreter path."""
    version: str = ""
    """Symbol version, for `version`; floor for `kernel` and `isa`."""
    provider: str = ""
    """The file that was chosen and lacks the version."""
    injected: bool = False
    """The file that needs it, or the provider, comes from the host."""
    searched: tuple[str, ...] = ()
    """Directories in the order in which they were sought."""


@dataclass(frozen=True)
class Closure:
    """How each recorded file is reached, and the problems of each in the context in which it is loaded."""

    reaches: dict[str, Reach] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    chosen: dict[tuple[str, str], str] = field(default_factory=dict)
    """(file, soname) to the path chosen; injected files by their path in the container."""
    opens: dict[str, str] = field(default_factory=dict)
    """Soname to the file that a `dlopen` by the command would open (libcuda.so.1, libnvidia-ml.so.1)."""

    def reach(self, path: str) -> Reach:
        return self.reaches.get(path, "unreached")
