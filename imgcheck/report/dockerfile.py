"""Finds the line of a Dockerfile that brought a layer, from the layer's history line."""

import re
from dataclasses import dataclass
from pathlib import Path

_BUILD_ARGUMENTS = re.compile(r"^\|\d+ (?:\S+=\S* )*")
_NOISE = ("/bin/sh -c #(nop) ", "/bin/sh -c ", "RUN ")


@dataclass(frozen=True)
class Dockerfile:
    """The instructions of a Dockerfile with the line each begins on."""

    path: str
    instructions: tuple[tuple[int, str], ...]

    def line_of(self, history: str) -> int:
        """The line whose instruction made the layer with this history; 1 where none can be told."""
        wanted = _normalised(history)
        if not wanted:
            return 1
        return next((line for line, words in self.instructions if words == wanted), 1)


def read_dockerfile(path: Path) -> Dockerfile:
    """The instructions of the file at `path`, continuation lines joined. Raises OSError."""
    instructions: list[tuple[int, str]] = []
    begun, words = 0, ""
    for number, raw in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        begun = begun or number
        words += line.removesuffix("\\") + " "
        if not line.endswith("\\"):
            instructions.append((begun, _normalised(words)))
            begun, words = 0, ""
    # Annotations want the path within the repository, where the tool is run.
    absolute, here = path.absolute(), Path.cwd()
    return Dockerfile(str(absolute.relative_to(here) if absolute.is_relative_to(here) else path), tuple(instructions))


def _normalised(instruction: str) -> str:
    # A history line is written "RUN /bin/sh -c CMD # buildkit", "/bin/sh -c CMD" or "/bin/sh -c #(nop) COPY ...".
    text = " ".join(instruction.split()).removesuffix(" # buildkit")
    for prefix in _NOISE:
        text = text.removeprefix(prefix)
    text = _BUILD_ARGUMENTS.sub("", text)
    for prefix in _NOISE:
        text = text.removeprefix(prefix)
    return text
