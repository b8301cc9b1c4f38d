"""CPU003: a CPU below a level that the image's C library, loader or program refuses before it runs anything."""

from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct

from imgcheck.check.context import Answers, Context
from imgcheck.check.cpu_host import CpuHost, build, example, lacking, lacks_of_refusal
from imgcheck.check.cpu_variants import Variants
from imgcheck.check.loader_rules import glibc_of
from imgcheck.documents.facts import Refusal
from imgcheck.documents.image import FileRecord
from imgcheck.documents.report import Finding
from imgcheck.knowledge import cpus
from imgcheck.knowledge.changes import does
from imgcheck.loader.glibc import is_libc, is_loader

_BY_GLIBC = "the image's glibc {glibc} compares that mark with the CPU before it runs anything"
_REFUSERS = {
    "glibc": ("The C library", "its note", _BY_GLIBC),
    "": ("The loader", "its note", _BY_GLIBC),
    "itself": ("The program itself", "its start code", "its start code tests for it, and ends the program without it"),
}
"""Who refuses a CPU, the worst first: by the variant of the predicted error, the name, what asks, and how."""
_POWER_FLOORS = (("arch_3_1", "3.1", "POWER10"), ("arch_3_00", "3.00", "POWER9"))


class Refused(Struct, frozen=True):
    """A file that is ended on a CPU below a level before it runs, and by whom."""

    record: FileRecord
    level: str
    by: str
    """A key of _REFUSERS."""
    refusal: Refusal | None = None
    """The program's own."""
    glibc: str = ""
    """The version of the C library of its process, where it is known and asked."""

    @property
    def demanded(self) -> tuple[str, ...]:
        """The features, or the level, without which it is ended."""
        return self.refusal.demanded if self.refusal else (self.level,)

    @property
    def why(self) -> str:
        """What asks for these."""
        if self.refusal is None:
            return f"its note asks for {self.level}"
        return self.refusal.words or f"it asks for {', '.join(self.demanded)} by itself"


def refusals(context: Context, host: CpuHost, variants: Variants, answers: Answers) -> None:
    """CPU003."""
    refusing = list(refused(context, variants))
    if host.features is None and (refusing or _power_floor(context, host)):
        levels = sorted({each.level for each in refusing}) or ["more than the baseline"]
        answers.answer(
            "CPU003", "unknown", f"the image demands {levels[-1]}, and the host's CPU features are not known"
        )
        return
    findings = [*_level_findings(context, host, refusing), *_power_findings(context, host)]
    reaches = "the CPU reaches the levels that the image's files demand"
    baseline = "no file of the image demands a level above the baseline"
    answers.conclude("CPU003", findings, reaches if refusing else baseline)


def refused(context: Context, variants: Variants) -> Iterator[Refused]:
    """Files that are ended on some CPU below a level; those left out that nobody opens there."""
    yield from _marked(context, variants)
    yield from _refusing_themselves(context)


def _marked(context: Context, variants: Variants) -> Iterator[Refused]:
    """Files whose note the loader of their process obeys, and the C library, which obeys its own."""
    for record, linkage in context.linked:
        if linkage.isa_level not in cpus.LEVELS[1:]:
            continue
        glibc, itself = glibc_of(context, record.path), is_libc(linkage) or is_loader(linkage)
        if not itself and not does(context.knowledge, "glibc-compares-isa-note", glibc):
            continue
        if not variants.pass_over(record, linkage):
            yield Refused(record, linkage.isa_level, "glibc" if itself else "", glibc=glibc)


def _refusing_themselves(context: Context) -> Iterator[Refused]:
    for record, _ in context.linked:
        isa = context.image.facts(record).isa
        if isa and isa.refusal and isa.refusal.level in cpus.LEVELS:
            yield Refused(record, isa.refusal.level, "itself", isa.refusal)


def _level_findings(context: Context, host: CpuHost, refusing: list[Refused]) -> Iterator[Finding]:
    """One finding per demand and refuser: the C library stops every program, the others those with the file."""
    groups: dict[tuple[str, tuple[str, ...]], list[Refused]] = defaultdict(list)
    for each in refusing:
        if _lacks(host, each):
            groups[each.by, each.demanded].append(each)
    for (by, demanded), members in sorted(
        groups.items(), key=lambda item: ([*_REFUSERS].index(item[0][0]), item[0][1])
    ):
        members.sort(key=lambda each: (context.closure.rank(each.record.path), each.record.path))
        first, lacks = members[0], _lacks(host, members[0])
        refuser, asks, how = _REFUSERS[by]
        printed = first.refusal.words if first.refusal else ""
        wanted = _wanted(host, first)
        subject = " ".join(demanded)
        yield context.finding(
            "CPU003",
            "fail",
            subject=f"{by} {subject}" if by else subject,
            evidence=tuple(
                context.evidence(each.record, f"{asks} asks for {wanted.what}", level=each.level) for each in members
            ),
            variant="silently" if by == "itself" and not printed else by,
            refuser=refuser,
            refused=wanted.refused,
            wanted=wanted.what,
            suitable=wanted.suitable,
            path=first.record.path,
            words=printed,
            how=how.replace("{glibc}", first.glibc or "(version unknown)"),
            host_cpu=host.name,
            shortcoming=wanted.shortcoming,
            example=example(host, wanted.features | lacks),
            build=build(host),
        )


class _Wanted(Struct, frozen=True):
    """What is demanded of the CPU, in words."""

    what: str
    refused: str
    """Which CPUs are refused, and"""
    suitable: str
    """what one is or has that is not; and"""
    shortcoming: str
    """what the host's does."""
    features: frozenset[str] = frozenset()
    """All that CPUs have that do."""


def _wanted(host: CpuHost, refused: Refused) -> _Wanted:
    lacking = cpus.display(host.knowledge, "x86_64", _lacks(host, refused))
    if refused.refusal and refused.refusal.features:
        features = frozenset(refused.refusal.features)
        what = cpus.display(host.knowledge, "x86_64", features)
        return _Wanted(what, f"without {lacking}", f"has {what}", f"lacks {lacking}", features)
    level, reached = refused.level, cpus.level_of(host.knowledge, host.features or ())
    shortcoming = f"reaches {reached} only: it lacks {lacking}"
    return _Wanted(level, f"below {level}", f"is {level}", shortcoming, cpus.level_features(host.knowledge, level))


def _lacks(host: CpuHost, refused: Refused) -> frozenset[str]:
    return lacks_of_refusal(host, refused.refusal) if refused.refusal else lacking(host, refused.level)


def _power_floor(context: Context, host: CpuHost) -> list[tuple[FileRecord, str, str, str]]:
    """C libraries for ppc64le whose own code requires a newer ISA: their loader tests for it before all else."""
    found = []
    for record, linkage in context.linked:
        itself = linkage.machine == "ppc64le" and (is_libc(linkage) or is_loader(linkage))
        isa = context.image.facts(record).isa if itself else None
        if isa is None:
            continue
        required = {use.feature for use in isa.uses if use.answer == "required"}
        floor = next((entry for entry in _POWER_FLOORS if entry[0] in required), None)
        if floor and host.has("ppc64le", floor[0]) is not True:
            found.append((record, *floor))
    return found


def _power_findings(context: Context, host: CpuHost) -> Iterator[Finding]:
    floors = _power_floor(context, host)
    for feature in sorted({entry[1] for entry in floors}):
        members = [entry for entry in floors if entry[1] == feature]
        record, _, isa, generation = members[0]
        yield context.finding(
            "CPU003",
            "fail",
            subject=f"glibc {feature}",
            evidence=tuple(context.evidence(entry[0], f"built for {generation}", feature=feature) for entry in members),
            variant="power",
            refuser="The C library",
            refused=f"below {generation}",
            wanted=generation,
            suitable=f"is {generation}",
            path=record.path,
            isa=isa,
            generation=generation,
            how="it tests for it before it runs anything",
            host_cpu=host.name,
            shortcoming=f"lacks {cpus.display(host.knowledge, 'ppc64le', [feature])}",
            example="",
            build=build(host),
        )
