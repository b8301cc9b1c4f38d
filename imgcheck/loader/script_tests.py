"""What the tests of a shell's script find (`[`, `test`, `[[`, `case`), as far as it can be told without running it.

The reader (loader/shell.py) keeps the condition of each branch as the words of one command: `case`, what it looks at
and the patterns of the branch; or `if` and single tests between brackets, with `&&`, `||`, `!` between them and OPEN
in place of what only running tells.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator
from itertools import product

from imgcheck.loader.expansion import GAP, Shell
from imgcheck.loader.shell import OPEN, SUCCEEDS

Exists = Callable[[str, bool], bool | None]
"""Whether a path is a file of the image, one that may be executed where that is asked, as far as that is told."""

_CLOSERS = {"[": "]", "[[": "]]"}
_MOST = 64
"""Combinations of values that are looked at."""
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d{0,8})")
"""Behind a nought `[[` takes octal digits."""
_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-lt": int.__lt__,
    "-le": int.__le__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
}
_FILES = {"-e": False, "-f": False, "-r": False, "-s": False, "-x": True}


def decided(words: tuple[str, ...], shell: Shell, exists: Exists) -> bool | None:
    """Whether the condition holds where a shell comes to it; None where that cannot be told."""
    if shell.vague:
        return None
    if words[0] == "case":
        return _matches(words[1], words[2:], shell)
    return _condition(words[1:], shell, exists)


def _matches(subject: str, patterns: tuple[str, ...], shell: Shell) -> bool | None:
    """Whether one of the patterns of `case` is what it looks at."""
    values = shell.tested(subject)
    wanted = [one for pattern in patterns for one in shell.tested(pattern)]
    if any(GAP in word for word in (*values, *wanted)):
        return None
    return _agreed(any(fnmatch.fnmatchcase(value, each) for each in wanted) for value in values)


def _condition(items: tuple[str, ...], shell: Shell, exists: Exists) -> bool | None:
    """A list of tests: `&&` and `||` bind alike, from left to right."""
    found: bool | None = None
    joint, negated, at = "", False, 0
    while at < len(items):
        item = items[at]
        at += 1
        if item == "!":
            negated = not negated
            continue
        if item in ("&&", "||"):
            joint = item
            continue
        one: bool | None = None
        if item in _CLOSERS:
            end = _end(items, at, _CLOSERS[item])
            # "[[: not found" and "unexpected operator" are false like any other failure.
            fails = shell.plain and (item == "[[" or "==" in items[at:end])
            one = False if fails else _expression(items[at:end], item == "[[", shell, exists)
            at = end + 1
        elif item != OPEN:
            return None  # a pipeline
        one = _not(one) if negated else one
        found = _joined(found, joint, one) if joint else one
        joint, negated = "", False
    return found


def _end(items: tuple[str, ...], at: int, closer: str) -> int:
    """Where the test ends that begins there; a bracket may be a word of it, too."""
    while at < len(items) and not (items[at] == closer and items[at + 1 : at + 2] in ((), ("&&",), ("||",))):
        at += 1
    return at


def _not(one: bool | None) -> bool | None:
    return None if one is None else not one


def _joined(left: bool | None, joint: str, right: bool | None) -> bool | None:
    decisive = joint == "||"
    if decisive in (left, right):
        return decisive
    return None if left is None or right is None else not decisive


def _expression(words: tuple[str, ...], patterns: bool, shell: Shell, exists: Exists) -> bool | None:
    """The words of one test; `patterns`: as `[[` takes them."""
    depths = _depths(words)
    if len(words) > 2 and min(depths) and (words[0], words[-1]) == ("(", ")"):
        return _expression(words[1:-1], patterns, shell, exists)
    for joint in ("||", "-o", "&&", "-a"):
        outside = (index for index in range(1, len(words) - 1) if not depths[index])
        places = [index for index in outside if words[index] == joint]
        # Compared with one of these words, it is none that joins.
        if places and not (len(words) == 3 and words[1] not in ("-a", "-o", "&&", "||")):
            left, right = words[: places[0]], words[places[0] + 1 :]
            one, other = (_expression(each, patterns, shell, exists) for each in (left, right))
            return _joined(one, "||" if joint in ("||", "-o") else "&&", other)
    if words[:1] == ("!",) and len(words) > 1:
        return _not(_expression(words[1:], patterns, shell, exists))
    values = product(*(shell.tested(word) for word in words))
    found = [_single(each, patterns, exists) for _, each in zip(range(_MOST + 1), values, strict=False)]
    return _agreed(iter(found)) if len(found) <= _MOST else None


def _depths(words: tuple[str, ...]) -> list[int]:
    """How many pairs of brackets are around each of the words, the brackets themselves counted in."""
    depths, depth = [], 0
    for word in words:
        depth += word == "("
        depths.append(depth)
        depth -= word == ")" and depth > 0
    return depths if not depth else [0] * len(words)


def _agreed(answers: Iterator[bool | None]) -> bool | None:
    """What all say alike."""
    found = set(answers)
    return found.pop() if len(found) == 1 else None


def _single(words: tuple[str, ...], patterns: bool, exists: Exists) -> bool | None:
    """A test whose words are known."""
    if any(GAP in word for word in words):
        return None
    if len(words) == 1:
        return bool(words[0])
    if len(words) == 2:
        return _unary(words[0], words[1], exists)
    if len(words) != 3:
        return None
    left, operator, right = words
    if operator in ("=", "==", "!="):
        same = fnmatch.fnmatchcase(left, right) if patterns else left == right
        return same == (operator != "!=")
    if operator in _COMPARED and _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right):
        return _COMPARED[operator](int(left), int(right))
    return None


def _unary(operator: str, word: str, exists: Exists) -> bool | None:
    if operator == SUCCEEDS:
        return {"true": True, ":": True, "false": False}.get(word)
    if operator in ("-n", "-z"):
        return bool(word) == (operator == "-n")
    return exists(word, _FILES[operator]) if operator in _FILES else None
