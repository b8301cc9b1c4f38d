"""imgcheck.toml: the typed policy of a project, and where it is found."""

import datetime
import difflib
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, get_args

import msgspec

from imgcheck.documents.report import FailOn, Severity
from imgcheck.errors import PolicyError
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.site import in_quotes

FILE = "imgcheck.toml"


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the policy. A misspelt key would quietly demand less, so unknown ones are refused."""


class RequiredHost(_Part, frozen=True):
    """`[[host]]`: machines that the image must work on, by files of `imgcheck probe -o`, or described as there."""

    name: str = ""
    """What reports and baselines call it."""
    profile: str = ""
    """Path or glob of host files, relative to the policy; equal ones count as one kind."""
    arch: str = ""
    """Architecture: amd64, x86_64, arm64, ppc64le."""
    cpu: str = ""
    """A microarchitecture (haswell, zen3), an x86-64 level (x86-64-v3) or a product (Xeon Gold 6148)."""
    gpus: tuple[str, ...] = ()
    """Names of GPUs, each of which must be served; ["none"] where there is none."""
    driver: str = ""
    """Version of the NVIDIA driver, or its branch: 535.104.05, 535; "none" where there is none."""
    cuda: str = ""
    """CUDA version of the driver, where its own is not known."""
    glibc: str = ""
    """Version of the host's C library, which bounds what a runtime injects."""
    kernel: str = ""
    """Version of the Linux kernel."""
    runtimes: tuple[str, ...] = ()
    """Under each of these it must work there; those of the policy where empty."""


class Waiver(_Part, frozen=True):
    """`[[waiver]]`: findings that somebody answers for, until a day."""

    rule: str
    """Id of the rule: CPU001."""
    reason: str
    """Who accepts it, and why."""
    expires: datetime.date
    """The last day on which it holds."""
    path: str = ""
    """Glob that every place of the finding must match: `*` within a directory, `**` through all. Empty: any place."""

    @property
    def label(self) -> str:
        return f"waiver of {self.rule}{f' at {self.path}' if self.path else ''}"

    def matches(self, path: str) -> bool:
        return not self.path or bool(_glob(self.path).fullmatch(path))


class Policy(_Part, frozen=True):
    """The whole file."""

    host: tuple[RequiredHost, ...] = ()
    """Machines that every image must work on."""
    runtimes: tuple[str, ...] = ()
    """Under each of these it must work; empty: the best of those found on the host decides."""
    fail_on: FailOn = "fail"
    """From this level on the exit status is 1."""
    allow_unknown: bool = False
    """An undecided verdict exits with 0, not 3."""
    baseline: str = ""
    """Path of a baseline, relative to the policy."""
    waiver: tuple[Waiver, ...] = ()
    """Findings that somebody answers for, until a day."""
    severity: dict[str, Severity] = {}
    """Rule id to the severity that its findings shall have."""


def find_policy(directory: Path) -> Path | None:
    """The nearest imgcheck.toml in `directory` or above it.

    Raises PolicyError where it cannot be reached or is no file: who passed it by would let every image through.
    """
    absolute = directory.absolute()
    return next((found for each in (absolute, *absolute.parents) if _is_there(found := each / FILE)), None)


def _is_there(path: Path) -> bool:
    way_out = "mend or remove it; --no-policy checks without one"
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not path.is_symlink():
            return False
        raise PolicyError(f"{path}: cannot be reached: {error.strerror}", way_out) from None
    if not stat.S_ISREG(mode):  # reading a FIFO would wait for its writer
        raise PolicyError(f"{path}: not a regular file", way_out)
    return True


def read_policy(path: Path, knowledge: Knowledge) -> Policy:
    """The policy at `path`, its rules and runtimes held against what is known.

    Raises PolicyError, which names the file, the key and the way out.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:  # so --policy named it
        raise PolicyError(f"{path}: {error.strerror}", f"name an existing {FILE}, or leave --policy away") from None
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}", "it must be a file that you may read") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PolicyError(f"{path}: not valid TOML: {error}", "docs/policy.md shows the form") from None
    try:
        policy = msgspec.convert(raw, Policy)
    except msgspec.ValidationError as error:
        raise _explained(path, str(error), raw) from None
    _check(path, policy, knowledge)
    _refuse_empty(path, raw)
    return policy


_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<where>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`")
_MISSING = re.compile(r"Object missing required field `(?P<key>.*)`")
_WORDS = {"fail_on": get_args(FailOn), "severity": get_args(Severity)}
_TABLES: dict[str, type[_Part]] = {"host": RequiredHost, "waiver": Waiver}


def _explained(path: Path, problem: str, raw: dict[str, Any]) -> PolicyError:
    """The decoder's words as a person knows the file: tables counted from one, unknown keys with their neighbours."""
    found = _AT.match(problem)
    assert found is not None  # every part of the pattern is optional
    where = found["where"] or ""
    table = where.partition("[")[0]
    place = re.sub(r"\[(\d+)\]", lambda index: f" {int(index[1]) + 1}", where)
    place = f"{path}: {place}: " if place else f"{path}: "
    keys = _TABLES.get(table, Policy).__struct_fields__
    unknown, missing = _UNKNOWN.match(found["what"]), _MISSING.match(found["what"])
    if unknown:
        return PolicyError(f"{place}unknown key {unknown['key']!r}", _near(unknown["key"], keys))
    if missing:
        hint = f"add {missing['key']} = ...; a waiver has a rule, a reason and the last day on which it holds"
        return PolicyError(f"{place}{missing['key']} is missing", hint)
    if found["what"].startswith("Invalid enum value") and table in _WORDS:
        return PolicyError(f"{place}{found['what']}", f"one of {', '.join(_WORDS[table])}")
    hint = (table not in _WORDS and in_quotes(problem, raw)) or "docs/policy.md tells what each key takes"
    return PolicyError(f"{place}{found['what']}", hint)


def _near(name: str, names: tuple[str, ...] | list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(names)}"


def _check(path: Path, policy: Policy, knowledge: Knowledge) -> None:
    for number, waiver in enumerate(policy.waiver, 1):
        _known_rule(path, f"waiver {number}: rule", waiver.rule, knowledge)
        if not waiver.reason.strip():
            raise PolicyError(f"{path}: waiver {number}: reason is empty", "say who accepts it, and why")
    for rule in policy.severity:
        _known_rule(path, "severity", rule, knowledge)
    named = [("runtimes", policy.runtimes)]
    named += [(f"host {number}: runtimes", host.runtimes) for number, host in enumerate(policy.host, 1)]
    for where, runtimes in named:
        for runtime in runtimes:
            if runtime not in knowledge.runtimes:
                near = _near(runtime, list(knowledge.runtimes))
                raise PolicyError(f"{path}: {where}: unknown runtime {runtime!r}", near)


def _refuse_empty(path: Path, raw: dict[str, Any]) -> None:
    """An empty text would demand as little as one that is not there: a waiver with no path holds everywhere."""
    tables = [("", raw)]
    tables += [(f"{kind} {number}: ", table) for kind in _TABLES for number, table in enumerate(raw.get(kind, ()), 1)]
    for where, table in tables:
        for key, value in table.items():
            if value == "":
                raise PolicyError(f"{path}: {where}{key} is empty", "leave it away, or say what is meant")


def _known_rule(path: Path, where: str, rule: str, knowledge: Knowledge) -> None:
    if rule not in knowledge.catalogue:
        raise PolicyError(f"{path}: {where}: no rule {rule!r}", "imgcheck rules lists them")


def _glob(pattern: str) -> re.Pattern[str]:
    # fnmatch lets `*` cross directories, which a waiver must not do unasked.
    parts = re.split(r"(\*\*/?|\*|\?)", pattern)
    words = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(words.get(part, re.escape(part)) for part in parts), re.DOTALL)
