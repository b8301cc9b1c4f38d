r"""NVIDIA_REQUIRE_*: the conditions that an image sets on driver and GPU, evaluated as NVIDIA's runtime does.

    value := group (" "+ group)*      one group must hold
    group := rule ("," rule)*         every rule must hold, left to right
    rule  := name op number           name of cuda, driver, arch, brand; op of = != ! < <= > >=

Several variables must all hold; NVIDIA_REQUIRE_JETPACK* is not looked at. Sources: libnvidia-container (src/cli/dsl.c,
configure.c), NVIDIA Container Toolkit (internal/config/image).
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from imgcheck.versions import compare, parse

_RULE = r"([A-Za-z]+)(>=|<=|!=|!|=|<|>)([^\s,]*)"
_NUMBER = r"\d+(?:\.\d+)*"
_TRUE = frozenset(["1", "t", "T", "TRUE", "true", "True"])


class Facts(Struct, frozen=True):
    """What the rules ask about; empty strings are not known."""

    cuda: str = ""
    driver: str = ""
    arch: str = ""
    brand: str = ""
    newest_cuda: str | None = None
    """Where `cuda` is the oldest that it may be, the newest; empty where nothing tells."""


class Answer(Struct, frozen=True):
    """Whether a requirement holds: None where a fact that decides is not known."""

    holds: bool | None
    condition: str = ""
    """The rule that does not hold, as the runtime names it, or that cannot be decided."""
    malformed: bool = False


def requirements(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that count, with the one that a legacy image stands for.

    A legacy image asks for cuda>=MAJOR.MINOR.
    """
    found = {
        key: value
        for key, value in environment.items()
        if key.startswith("NVIDIA_REQUIRE_") and not key.startswith("NVIDIA_REQUIRE_JETPACK")
    }
    version = parse(environment.get("CUDA_VERSION", ""))
    if is_legacy(environment) and len(version) >= 2:
        found["CUDA_VERSION"] = f"cuda>={version[0]}.{version[1]}"
    return found


def is_legacy(environment: Mapping[str, str]) -> bool:
    """Whether an image is of nvidia-docker 1: it has CUDA_VERSION, and NVIDIA_REQUIRE_CUDA is absent or empty."""
    return bool(environment.get("CUDA_VERSION")) and not environment.get("NVIDIA_REQUIRE_CUDA")


def disabled(environment: Mapping[str, str], counts: str) -> bool:
    """Whether NVIDIA_DISABLE_REQUIRE switches the evaluation off; each runtime reads it its own way.

    `counts` as Family.disable_require has it.
    """
    value = environment.get("NVIDIA_DISABLE_REQUIRE")
    if value is None:
        return False
    return counts == "set" or (bool(value) if counts == "filled" else value in _TRUE)


def evaluate(predicate: str, facts: Facts) -> Answer:
    """One variable's value against one GPU. An empty predicate holds."""
    groups = predicate.split()
    if not groups:
        return Answer(True)
    first: Answer | None = None
    open_question: Answer | None = None
    for group in groups:
        answer = _group(group, facts)
        if answer.holds or answer.malformed:
            # An invalid rule is an error as soon as it is reached, unless an earlier group holds for certain.
            return open_question if open_question and not answer.holds else answer
        if answer.holds is None:
            open_question = open_question or answer
        first = first or answer
    return open_question or first or Answer(True)


def _group(group: str, facts: Facts) -> Answer:
    undecided: Answer | None = None
    for text in group.split(","):
        match = re.fullmatch(_RULE, text)
        holds = _rule(match, facts) if match else "malformed"
        if holds == "malformed":
            return undecided or Answer(False, text, malformed=True)
        if holds is False:
            return Answer(False, text)
        if holds is None:
            undecided = undecided or Answer(None, text)
    return undecided or Answer(True)


def _rule(match: re.Match[str], facts: Facts) -> bool | str | None:
    name, operator, wanted = match[1].lower(), match[2], match[3]
    if name not in ("cuda", "driver", "arch", "brand"):
        return "malformed"
    own = getattr(facts, name)
    if name == "brand":
        if operator not in ("=", "!=", "!"):
            return "malformed"
        return None if not own else (own.lower() == wanted.lower()) == (operator == "=")
    if not re.fullmatch(_NUMBER, wanted) or not parse(wanted):
        return "malformed"
    if name == "cuda" and own and facts.newest_cuda is not None:
        return _compare_span(own, facts.newest_cuda or f"{wanted}.1", operator, wanted)
    return _compare(own, operator, wanted) if own else None


def _compare_span(oldest: str, newest: str, operator: str, wanted: str) -> bool | None:
    """As `_compare`, for all versions from `oldest` to `newest`; None where these differ."""
    between = [wanted] if compare(oldest, wanted) <= 0 <= compare(newest, wanted) else []
    answers = {_compare(own, operator, wanted) for own in (oldest, newest, *between)}
    return answers.pop() if len(answers) == 1 else None


def _compare(own: str, operator: str, wanted: str) -> bool:
    left, right = _trimmed(own), _trimmed(wanted)
    return {
        "=": left == right, "!=": left != right, "!": left != right,
        "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right,
    }[operator]  # fmt: skip


def _trimmed(version: str) -> tuple[int, ...]:
    parts = parse(version)
    while parts and parts[-1] == 0:
        parts = parts[:-1]
    return parts


def evaluate_all(predicates: Mapping[str, str], gpus: Sequence[Facts]) -> tuple[str, Answer] | None:
    """The first variable that does not hold, or cannot be decided, for all of `gpus`; None where all hold.

    A certain failure goes before an open question.
    """
    undecided = None
    for name, predicate in predicates.items():
        for facts in gpus:
            answer = evaluate(predicate, facts)
            if answer.holds is False:
                return name, answer
            if answer.holds is None and undecided is None:
                undecided = name, answer
    return undecided
