"""The loader's small text files: ld.so.conf with its includes, ld.so.preload, musl's path file."""

import fnmatch
import posixpath
from collections.abc import Iterator, Mapping

_FILES_LIMIT = 256
"""Files that may include each other, and patterns by which they do."""


def read_conf(texts: Mapping[str, bytes], path: str = "/etc/ld.so.conf") -> tuple[str, ...]:
    """Directories of `path` and its includes in the order in which ldconfig takes them, each once.

    `texts` holds the files by absolute path. `include` takes globs, relative to the including file's directory;
    `hwcap` lines and comments are skipped, and so is the `=TYPE` behind a directory.
    """
    return tuple(dict.fromkeys(_directories(texts, path, {}, set())))


def _directories(texts: Mapping[str, bytes], path: str, seen: dict[str, None], patterns: set[str]) -> Iterator[str]:
    """`seen` are the files that were begun, `patterns` what was included: once more they would add nothing."""
    if path in seen or len(seen) > _FILES_LIMIT:
        return
    seen[path] = None
    for line in _lines(texts.get(path, b"")):
        words = line.split()
        if words[0] == "include":
            for whole in (posixpath.join(posixpath.dirname(path), pattern) for pattern in words[1:]):
                if whole in patterns or len(patterns) > _FILES_LIMIT:
                    continue
                patterns.add(whole)
                for name in sorted(set(fnmatch.filter(texts, whole)).difference(seen)):
                    if name.count("/") == whole.count("/"):
                        yield from _directories(texts, name, seen, patterns)
        elif words[0] != "hwcap":
            yield from (_directory(word) for word in line.replace(",", " ").replace(":", " ").split())


def _directory(word: str) -> str:
    return (word.partition("=")[0].rstrip("/")) or "/"


def _lines(data: bytes) -> Iterator[str]:
    for raw in data.decode("utf-8", "backslashreplace").splitlines():
        line = raw.partition("#")[0].strip()
        if line:
            yield line


def read_preload(data: bytes) -> tuple[str, ...]:
    """Names of ld.so.preload: separated by white space or colons, `#` begins a comment."""
    return tuple(word for line in _lines(data) for word in line.replace(":", " ").split())


def read_musl_path(data: bytes) -> tuple[str, ...]:
    """Directories of musl's /etc/ld-musl-ARCH.path, which newlines or colons separate."""
    text = data.decode("utf-8", "backslashreplace").replace("\n", ":")
    return tuple(word.strip() for word in text.split(":") if word.strip())
