"""Dotted version numbers as drivers, CUDA, kernels and symbol versions use them."""

import re
from functools import lru_cache

_LEADING = re.compile(r"\d+(?:\.\d+)*")
_DRIVER = re.compile(r"\d{3,4}\.\d+(?:\.\d+)?")


@lru_cache(maxsize=1024)  # a check asks some hundred times for the versions of a few files, drivers and releases
def parse(text: str) -> tuple[int, ...]:
    """The leading dotted number of `text` as integers: "3.10.0-957.el7" gives (3, 10, 0).

    Empty where `text` does not begin with a digit. Trailing zeros are kept; compare with `compare`.
    """
    match = _LEADING.match(text)
    # Versions come from hostile images: a component of thousands of digits is no version (and int() refuses it).
    if not match or len(match[0]) > 100:
        return ()
    return tuple(int(part) for part in match[0].split("."))


def compare(left: str, right: str) -> int:
    """Negative, zero or positive as `left` is older than, equal to or newer than `right`; "12.2" equals "12.2.0"."""
    a, b = _trimmed(parse(left)), _trimmed(parse(right))
    return (a > b) - (a < b)


def at_least(version: str, floor: str) -> bool:
    return compare(version, floor) >= 0


def is_driver(text: str) -> bool:
    """Whether `text` may be the version of an NVIDIA driver, as 396.44 or 535.104.05.

    The libcuda.so.1.1 of Jetson and of WSL is of no driver "1.1".
    """
    return bool(_DRIVER.fullmatch(text))


def _trimmed(parts: tuple[int, ...]) -> tuple[int, ...]:
    end = len(parts)
    while end and parts[end - 1] == 0:
        end -= 1
    return parts[:end]
