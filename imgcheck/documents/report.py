"""Report: the verdict of an image on hosts under runtimes, with findings and what was checked."""

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from imgcheck.documents.facts import Document

SCHEMA_VERSION = "1.0"

Severity = Literal["fail", "risk", "degraded", "info"]
Outcome = Literal["ok", "fail", "risk", "degraded", "unknown", "not-applicable"]
Verdict = Literal["compatible", "degraded", "unknown", "at-risk", "incompatible"]

VERDICTS: tuple[Verdict, ...] = ("compatible", "degraded", "unknown", "at-risk", "incompatible")
"""From best to worst."""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""From worst to least."""
OF_SEVERITY: Mapping[Severity, Verdict] = {
    "fail": "incompatible",
    "risk": "at-risk",
    "degraded": "degraded",
    "info": "compatible",
}
"""What a finding makes of an image."""
OF_OUTCOME: Mapping[Outcome, Verdict] = {
    "ok": "compatible",
    "not-applicable": "compatible",
    "unknown": "unknown",
    "degraded": "degraded",
    "risk": "at-risk",
    "fail": "incompatible",
}
"""What a rule's answer makes of it."""

ChosenBy = Literal["option", "host", "best"]
"""Who chose the runtime: an option, what the host has, or else the verdict, by the best of all."""
FailOn = Literal["never", "fail", "risk", "unknown", "degraded"]
FAIL_ON: tuple[FailOn, ...] = get_args(FailOn)
"""Levels from which on a check fails, from the mildest demand to the strictest; each but the first is an outcome."""


def worst(severities: Iterable[Severity]) -> Severity:
    """The worst of `severities`; "info" where there are none."""
    return min(severities, key=SEVERITIES.index, default="info")


def at_or_above(verdict: Verdict, level: FailOn) -> bool:
    """Whether an image with `verdict` is as bad as `level`, or worse."""
    return level != "never" and VERDICTS.index(verdict) >= VERDICTS.index(OF_OUTCOME[level])


class Complete(Document, frozen=True, omit_defaults=False):
    """A part of the report: every field is written, since scripts index them without asking."""


class Evidence(Complete, frozen=True):
    """One place in the image that makes a finding true."""

    path: str
    layer: int = -1
    """Index into the image's layers; -1 where the need comes from the config or the host."""
    history: str = ""
    """The Dockerfile line that brought the layer."""
    reach: str = ""
    way: tuple[str, ...] = ()
    """What leads to the file, from the command on: scripts and launchers that start programs, texts and top-level
    modules of Python that import others, and last what loads it. Empty where the runtime starts it itself."""
    detail: str = ""
    """The decisive fact in one line: the instruction, the architectures, the missing version."""
    data: dict[str, str] = {}
    """The same for programs: address, function, code, text, needed_by, searched."""


class Finding(Complete, frozen=True):
    """One predicted failure or remark: one per (rule, subject)."""

    rule: str
    severity: Severity
    title: str
    predicted_error: str
    why: str
    remedy: str
    subject: str
    """What it is about, stable between builds: a feature, a library, a GPU."""
    fingerprint: str
    evidence: tuple[Evidence, ...] = ()
    sources: tuple[str, ...] = ()
    waived: str = ""
    """Why it does not count: the reason of a waiver, or that a baseline has it. It is shown all the same."""


class CheckResult(Complete, frozen=True):
    """What one rule answered, also when it found nothing."""

    rule: str
    outcome: Outcome
    reason: str
    open: str = ""
    """A question that stays open besides: what the outcome is where a policy waives the findings."""


class Cell(Complete, frozen=True):
    """The verdict for one host under one runtime."""

    host: str
    runtime: str
    verdict: Verdict
    findings: tuple[str, ...] = ()
    """Fingerprints."""
    reason: str = ""
    """Why it is not compatible, in a few words."""


class ImageSummary(Complete, frozen=True):
    reference: str
    platform: str
    manifest_digest: str = ""
    config_digest: str = ""
    components: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


class HostSummary(Complete, frozen=True):
    name: str
    description: str = ""
    """CPU, GPUs, driver, kernel and glibc in one line."""
    count: int = 1
    """Number of equal machines."""

    @property
    def label(self) -> str:
        """As a report names it: `gpu (412 nodes)`."""
        return f"{self.name} ({self.count} nodes)" if self.count > 1 else self.name


class Requirement(Complete, frozen=True):
    """One host of several, in full: what decides for it."""

    host: HostSummary
    runtime: str
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    checks: tuple[CheckResult, ...] = ()


class Report(Complete, frozen=True, tag_field="kind", tag="report"):
    """The verdict; the top-level fields are those of the deciding cell."""

    schema_version: str
    verdict: Verdict
    image: ImageSummary
    host: HostSummary
    runtime: str
    runtime_chosen_by: ChosenBy
    findings: tuple[Finding, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    cells: tuple[Cell, ...] = ()
    tool: dict[str, str] = {}
    requirements: tuple[Requirement, ...] = ()
    """Where several hosts were asked for: each with its deciding runtime; where a policy requires several runtimes,
    each of these. Of one alone the top-level fields tell all."""
    notes: tuple[str, ...] = ()
    """Remarks on the policy: waivers that expired or match nothing, what a baseline has too much."""

    @property
    def required(self) -> tuple[Requirement, ...]:
        """`requirements`, or the one that the top-level fields tell of."""
        alone = Requirement(self.host, self.runtime, self.verdict, self.findings, self.checks)
        return self.requirements or (alone,)
