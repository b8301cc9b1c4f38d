"""Dotted version numbers as drivers, CUDA, kernels and symbol versions use them."""

import itertools
from functools import lru_cache

_LONGEST = 100
"""Letters of a version: they come from hostile images, and int() refuses thousands of digits."""


@lru_cache(maxsize=1024)  # a check asks some hundred times for the versions of a few files, drivers and releases
def parse(text: str) -> tuple[int, ...]:
    """The leading dotted number of `text` as integers: "3.10.0-957.el7" gives (3, 10, 0).

    Empty where `text` does not begin with a digit. Trailing zeros are kept; compare with `compare`.
    """
    # No expression: one takes longer to compile than a preflight has for all versions together.
    dotted = text[: len(text) - len(text.lstrip("0123456789."))]
    parts = list(itertools.takewhile(_is_number, dotted.split(".")))
    return tuple(map(int, parts)) if len(".".join(parts)) <= _LONGEST else ()


def compare(left: str, right: str) -> int:
    """Negative, zero or positive as `left` is older than, equal to or newer than `right`; "12.2" equals "12.2.0"."""
    a, b = _trimmed(parse(left)), _trimmed(parse(right))
    return (a > b) - (a < b)


def at_least(version: str, floor: str) -> bool:
    return compare(version, floor) >= 0


def compare_drivers(driver: str, release: str) -> int | None:
    """As `compare`; None where of the driver the branch alone is known, and the release is of that: 535, 535.104.05."""
    known, other = parse(driver), parse(release)
    return None if len(known) == 1 < len(other) and known == other[:1] else compare(driver, release)


def is_driver(text: str) -> bool:
    """Whether `text` may be the version of an NVIDIA driver, as 396.44 or 535.104.05.

    The libcuda.so.1.1 of Jetson and of WSL is of no driver "1.1".
    """
    major, *others = text.split(".")
    return len(major) in (3, 4) and len(others) in (1, 2) and all(map(_is_number, (major, *others)))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _trimmed(parts: tuple[int, ...]) -> tuple[int, ...]:
    end = len(parts)
    while end and parts[end - 1] == 0:
        end -= 1
    return parts[:end]
