"""What every rule sees, and what it answers with. Rules are pure: nothing here reads a file."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from imgcheck.check.gpu_use import wants_nvidia
from imgcheck.documents.facts import Linkage
from imgcheck.documents.host import HostProfile
from imgcheck.documents.image import RUNS, FileRecord, ImageProfile
from imgcheck.documents.report import CheckResult, Evidence, Finding, Outcome, Severity, worst
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Family, Runtime
from imgcheck.loader.closure import Closure, Roots
from imgcheck.loader.ways import Ways

_TITLES = 3
_BY_REACH: dict[str, tuple[Severity, ...]] = {
    "path": ("risk", "degraded", "info"),
    "unreached": ("info",),
}


class Context(Struct, frozen=True, dict=True):
    """One cell: an image on a host under a runtime."""

    image: ImageProfile
    host: HostProfile
    runtime: Runtime
    knowledge: Knowledge
    closure: Closure
    """What the image's command reaches, with the runtime's injected libraries in place."""
    require_gpu: bool = False
    roots: Roots = Roots()
    """What runs; by default nothing is known of it."""
    fingerprints: bool = True
    """Whether findings carry theirs."""

    @cached_property
    def linked(self) -> list[tuple[FileRecord, Linkage]]:
        """The ELF files, with what loader and kernel read in them: what most rules look through."""
        objects = self.image.objects
        pairs = [(record, objects[record.object].linkage) for record in self.image.files]
        return [(record, linkage) for record, linkage in pairs if linkage is not None]

    @cached_property
    def records(self) -> dict[str, FileRecord]:
        """Every recorded file by its path."""
        return {record.path: record for record in self.image.files}

    @cached_property
    def libcs(self) -> tuple[tuple[FileRecord, Linkage], ...]:
        """The C libraries that something loads (Closure.libcs), with what the loader reads in them."""
        return tuple((record, linkage) for record, linkage in self.linked if record.path in self.closure.libcs)

    @cached_property
    def ways(self) -> Ways:
        """What leads to each file."""
        return Ways(self.roots, self.closure, self.image.tree)

    @cached_property
    def family(self) -> Family:
        """What the runtime has in common with others of its kind."""
        return self.knowledge.family_of(self.runtime)

    @cached_property
    def nvidia_files(self) -> tuple[FileRecord, ...]:
        """Files that want a GPU of NVIDIA, what the command reaches first."""
        objects = self.image.objects
        wanting = {key for key, facts in objects.items() if wants_nvidia(facts)}
        found = [record for record in self.image.files if record.object in wanting]
        return tuple(sorted(found, key=lambda record: self.closure.rank(record.path)))

    def may_use_gpu(self, files: Sequence[FileRecord]) -> bool:
        """Whether one of `files`, what the command reaches first, may run, or the user asks for a GPU."""
        return self.require_gpu or any(self.closure.reach(record.path) != "unreached" for record in files[:1])

    def variant(self, rule: str, name: str) -> str:
        """`name` where the catalogue has an error text of that name for the rule, else "": its first one."""
        return name if name in self.knowledge.catalogue[rule].variants else ""

    def evidence_at(self, path: str, detail: str = "", **data: str) -> Evidence:
        """Evidence at a path, as `evidence` has it where it is that of a recorded file."""
        record = self.records.get(path)
        return self.evidence(record, detail, **data) if record else Evidence(path=path, detail=detail, data=data)

    def evidence(self, record: FileRecord, detail: str = "", **data: str) -> Evidence:
        """Evidence at a file, with the layer that brought it and how the command reaches it."""
        layer = self.image.layers[record.layer] if 0 <= record.layer < len(self.image.layers) else None
        return Evidence(
            path=record.path,
            layer=record.layer,
            history=layer.history if layer else "",
            reach=self.closure.reach(record.path),
            way=self.ways.to(record.path),
            detail=detail,
            data=data,
        )

    def finding(
        self,
        rule: str,
        severity: Severity,
        subject: str,
        evidence: tuple[Evidence, ...] = (),
        variant: str = "",
        **values: Any,
    ) -> Finding:
        """A finding with the catalogue's texts, `{placeholders}` filled from `values`.

        `variant` names another predicted error of the entry. The severity is lowered where every piece of
        evidence lies where the command does not reach (`severity_for`).
        """
        entry = self.knowledge.catalogue[rule]
        error = entry.variants[variant] if variant else entry.predicted_error
        values |= {"subject": subject}
        first = evidence[0].path if evidence else ""
        return Finding(
            rule=rule,
            severity=severity_for(severity, evidence),
            title=_fill(entry.title, values),
            predicted_error=_fill(error, values),
            why=_fill(entry.why, values),
            remedy=_fill(entry.remedy, values),
            subject=subject,
            fingerprint=_fingerprint(rule, subject, first) if self.fingerprints else "",
            evidence=evidence,
            sources=entry.sources,
        )


def _fingerprint(rule: str, subject: str, path: str) -> str:
    import hashlib  # a library of its own, which a preflight does without

    return hashlib.sha256(f"{rule}\0{subject}\0{path}".encode()).hexdigest()[:16]


def config_evidence(detail: str) -> tuple[Evidence, ...]:
    """Evidence that the image's config gives, not a file."""
    return (Evidence(path="", detail=detail),)


def unlooked_of(context: Context, paths: Iterable[str]) -> list[str]:
    """Those of `paths` of which the image's profile was not made to tell whether they are there."""
    looked_for = set(context.image.tree.looked_for)
    return [path for path in paths if path not in looked_for]


def unlooked(paths: Collection[str]) -> str:
    """Why a question about `paths` of the image is open, which its profile was not made to tell of; "" for none."""
    if not paths:
        return ""
    return f"the profile tells nothing of {', '.join(paths)}; make it again with the --rules that ask for it"


def severity_for(severity: Severity, evidence: tuple[Evidence, ...]) -> Severity:
    """`severity` limited by reach: `path` is at most a risk, `unreached` is info; the best-reached evidence decides."""
    reaches = {item.reach for item in evidence}
    if not reaches or reaches & {"", *RUNS}:
        return severity
    allowed = _BY_REACH["path" if "path" in reaches else "unreached"]
    return severity if severity in allowed else allowed[0]


def _fill(text: str, values: dict[str, Any]) -> str:
    # Values come from images: they cannot be driven into attribute access as with str.format, and what looks like a
    # placeholder in one of them stays as it is.
    filled, *pieces = text.split("{")
    for piece in pieces:
        name, closed, rest = piece.partition("}")
        filled += f"{values[name]}{rest}" if closed and name in values else f"{{{piece}"
    return filled


class Answers(Struct):
    """Findings and outcomes that one family of rules gives for a context."""

    findings: list[Finding] = []
    checks: list[CheckResult] = []

    def answer(self, rule: str, outcome: Outcome, reason: str, open: str = "") -> None:
        self.checks.append(CheckResult(rule, outcome, reason, open))

    def found(self, finding: Finding) -> None:
        self.findings.append(finding)

    def conclude(self, rule: str, findings: Iterable[Finding], fine: str, unknown: str = "") -> None:
        """Adds `findings` and the rule's outcome: the worst of them, else `unknown` where given, else ok with `fine`.

        An open question does not hide a certain failure, and findings that are only information leave it open.
        """
        found = tuple(findings)
        self.findings.extend(found)
        self.checks.append(concluded(rule, found, fine, unknown))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)


def concluded(rule: str, findings: Collection[Finding], fine: str, unknown: str = "") -> CheckResult:
    """A rule's outcome, as Answers.conclude has it."""
    level = worst(finding.severity for finding in findings)
    if level != "info" and (level != "degraded" or not unknown):
        return CheckResult(rule, level, _titles(each for each in findings if each.severity == level), unknown)
    if unknown:
        return CheckResult(rule, "unknown", unknown)
    return CheckResult(rule, "ok", f"{fine} (not decisive: {_titles(findings)})" if findings else fine)


def _titles(findings: Iterable[Finding]) -> str:
    """The titles of `findings`; of many the first ones and the number of the others."""
    titles = list(dict.fromkeys(finding.title for finding in findings))
    if len(titles) > _TITLES + 1:
        titles[_TITLES:] = [f"{len(titles) - _TITLES} more"]
    return "; ".join(titles)
