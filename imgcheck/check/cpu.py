"""CPU001 and CPU002, and all rules of the family: the instruction sets that the image's code uses against the CPU's."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct, structs

from imgcheck.check.arch import may_execute
from imgcheck.check.context import Answers, Context, severity_for
from imgcheck.check.cpu_host import CpuHost, build, example, is_tensorflow, lacks_of_refusal, words
from imgcheck.check.cpu_levels import refusals, refused
from imgcheck.check.cpu_unused import left_unused
from imgcheck.check.cpu_variants import Variants
from imgcheck.documents.facts import Isa, IsaUse, Linkage
from imgcheck.documents.image import FileRecord
from imgcheck.documents.report import Evidence, Finding, Severity
from imgcheck.knowledge import cpus

_LOADED = ("executable", "shared")
_BASELINE = "nothing beyond the baseline is required"
_UNDECIDED = "and it could not be decided whether the CPU is asked before they run"
_SILENT = "and a CPU without them executes them as others"


class _Need(Struct, frozen=True):
    """What one file wants of the CPU and the CPU lacks or may lack."""

    record: FileRecord
    machine: str
    isa: Isa
    uses: tuple[IsaUse, ...]
    """From the oldest extension to the newest."""


class Demand(Struct, frozen=True):
    """A feature or a level that an image wants of the CPU."""

    name: str
    """An id of rules/cpus, or a level."""
    record: FileRecord
    why: str
    certain: bool = True
    """Else it is not decided whether the CPU is asked before, or whether the code runs."""


def check(context: Context) -> Answers:
    """All rules of the family, each with one finding per extension, level or library."""
    answers = Answers()
    host = CpuHost(context)
    variants = Variants(context, host)
    code = list(_code(context, host, variants))
    using = [each for each in code if each[2].uses and not _ends_before(host, each[2])]
    unread = _unread(context)
    trapping = _illegal(context, host, using, unread, answers)
    # A file that ends in SIGILL anyway need not be doubted for its newer extensions too.
    doubted = [each for each in using if each[0].path not in trapping]
    _undecided(context, host, doubted, unread, answers)
    refusals(context, host, variants, answers)
    left_unused(context, host, code, answers)
    return answers


def _ends_before(host: CpuHost, isa: Isa) -> bool:
    """Whether the program refuses the CPU by itself (CPU003), so that none of its code traps."""
    return isa.refusal is not None and bool(lacks_of_refusal(host, isa.refusal))


def _code(context: Context, host: CpuHost, variants: Variants) -> Iterator[tuple[FileRecord, Linkage, Isa]]:
    """Files with analysed code that this CPU could execute at all, those that no loader ever opens left out."""
    objects = context.image.objects
    for record, linkage in context.linked:
        isa = objects[record.object].isa
        if isa is None or linkage.type not in _LOADED:
            continue
        if host.machine and cpus.feature_architecture(linkage.machine) != host.machine:
            continue
        if not variants.pass_over(record, linkage):
            yield record, linkage, isa


def demands(context: Context) -> Iterator[Demand]:
    """What the code that the command reaches requires of any CPU beyond the baseline, or may require.

    Of what lies where the command may find it nobody knows whether it runs.
    """
    host = CpuHost(context)
    variants = Variants(context, host)
    for record, _, isa in _code(context, host, variants):
        reach = context.closure.reach(record.path)
        counting = {"path": ("required",), "unreached": ()}.get(reach, ("required", "unknown"))
        for use in isa.uses:
            if use.answer in counting and not use.given:
                certain = use.answer == "required" and reach != "path"
                yield Demand(use.feature, record, use.text or use.reason, certain)
    for each in refused(context, variants):
        for name in each.demanded if context.closure.runs(each.record.path) else ():
            yield Demand(name, each.record, each.why)


def _needs(
    host: CpuHost, code: Iterable[tuple[FileRecord, Linkage, Isa]], answer: str, state: bool | None
) -> Iterator[_Need]:
    """Files with uses of `answer` whose extension the CPU lacks (`state` False) or may lack (None)."""
    for record, linkage, isa in code:
        given = [use for use in isa.uses if use.answer == answer]
        wanted = [use.feature for use in given if host.copes(linkage.machine, use) is state] if given else ()
        if wanted:
            uses = {use.feature: use for use in isa.uses if use.answer == answer}
            order = cpus.ranked(host.knowledge, linkage.machine, uses.keys() & set(wanted))
            yield _Need(record, linkage.machine, isa, tuple(uses[name] for name in order))


def _illegal(context: Context, host: CpuHost, code: list, unread: str, answers: Answers) -> set[str]:
    """CPU001; returns the files whose code traps."""
    trapping = list(_that_do(host, "trap", _needs(host, code, "required", False)))
    findings = list(_grouped(context, host, "CPU001", "fail", trapping))
    fine = f"{host.name} has every extension that what may run requires" if host.features is not None else _BASELINE
    unknown = unread or _open(context, host, _needs(host, code, "required", None))
    answers.conclude("CPU001", findings, fine, unknown)
    return {need.record.path for need in trapping}


def _that_do(host: CpuHost, what: str, needs: Iterable[_Need]) -> Iterator[_Need]:
    """Those uses of `needs` whose instructions do `what` on a CPU that lacks them (rules/cpus/features.toml)."""
    table = cpus.features(host.knowledge, host.machine)
    for need in needs:
        if uses := tuple(use for use in need.uses if table[use.feature].without == what):
            yield structs.replace(need, uses=uses)


def _undecided(context: Context, host: CpuHost, code: list, unread: str, answers: Answers) -> None:
    """CPU002."""
    needs = _that_do(host, "trap", _needs(host, code, "unknown", False))
    findings = list(_grouped(context, host, "CPU002", "risk", needs))
    if host.features is not None:
        # Extensions that no table of ours knows: whether the CPU has them cannot be told.
        findings += _grouped(context, host, "CPU002", "risk", list(_needs(host, code, "required", None)))
    silent = _that_do(host, "other-result", _needs(host, code, "required", False))
    findings += _grouped(context, host, "CPU002", "risk", silent, variant="other-result")
    merged = list({finding.subject: finding for finding in reversed(findings)}.values())[::-1]
    beyond = "that this CPU lacks" if host.features is not None else "beyond the baseline"
    fine = f"no undecided use of an extension {beyond}"
    unknown = unread or _open(context, host, _needs(host, code, "unknown", None))
    answers.conclude("CPU002", merged, fine, unknown)


def _grouped(
    context: Context, host: CpuHost, rule: str, severity: Severity, needs: Iterable[_Need], variant: str = ""
) -> Iterator[Finding]:
    """One finding per oldest missing extension; each file stands in exactly one of them."""
    groups: dict[str, list[_Need]] = defaultdict(list)
    for need in needs:
        groups[need.uses[0].feature].append(need)
    for subject in cpus.ranked(host.knowledge, host.machine, groups):
        members = sorted(groups[subject], key=lambda need: _rank(context, need))
        yield _finding(context, host, rule, severity, subject, members, variant)


def _rank(context: Context, need: _Need) -> tuple[int, bool, str]:
    """Best reached first, then what shows how it is reached, then by path so that reports stay the same."""
    return context.closure.rank(need.record.path), not need.uses[0].call_path, need.record.path


def _finding(
    context: Context, host: CpuHost, rule: str, severity: Severity, subject: str, members: list[_Need], variant: str
) -> Finding:
    first = members[0]
    evidence = tuple(_evidence(context, host, need) for need in members)
    # What others need, that are reached less, is in their evidence: it does not decide.
    worst, *weights = (severity_for("fail", (each,)) for each in (evidence[0], *evidence))
    deciding = [need for need, weight in zip(members, weights, strict=True) if weight == worst]
    wanted = {use.feature for need in deciding for use in need.uses}
    if not variant and rule == "CPU001" and is_tensorflow(context, first.record):
        variant = "tensorflow"
    return context.finding(
        rule,
        severity,
        subject,
        evidence=evidence,
        variant=variant,
        feature=cpus.display(host.knowledge, host.machine, [subject]),
        features=cpus.display(host.knowledge, host.machine, wanted),
        own=cpus.display(host.knowledge, host.machine, {use.feature for use in first.uses}),
        path=first.record.path,
        reason=first.uses[0].reason,
        doubt=_SILENT if variant == "other-result" else _UNDECIDED,
        host_cpu=host.name,
        example=example(host, wanted),
        build=build(host),
        tensorflow=words(host, [subject]),
    )


def _evidence(context: Context, host: CpuHost, need: _Need) -> Evidence:
    """The first instruction of the oldest missing extension; the others by `also.FEATURE` in the data."""
    use = need.uses[0]
    place = f" at {use.address:#x}" + (f" in {use.function}" if use.function else "") if use.text else ""
    shown = f"{use.text}{place}: {use.reason}" if use.text else use.reason
    data = {
        "features": " ".join(each.feature for each in need.uses),
        "address": f"{use.address:#x}" if use.address else "",
        "function": use.function,
        "code": use.code,
        "text": use.text,
        "call_path": " -> ".join(use.call_path),
        "count": str(use.count) if use.count else "",
        "baseline": need.isa.baseline,
    }
    data |= {
        f"also.{each.feature}": f"{each.text} at {each.address:#x}" if each.text else each.reason
        for each in need.uses[1:]
    }
    return context.evidence(need.record, shown, **{key: value for key, value in data.items() if value})


def _open(context: Context, host: CpuHost, open_needs: Iterable[_Need]) -> str:
    """Why it is open whether the CPU has what reached code that was read needs; "" where it is not."""
    reached = [need for need in open_needs if context.closure.runs(need.record.path)]
    if host.features is not None or not reached:
        return ""
    names = cpus.display(context.knowledge, reached[0].machine, {use.feature for need in reached for use in need.uses})
    return f"the image uses {names}, and the host's CPU features are not known"


def _unread(context: Context) -> str:
    """Why code that the command reaches is not known, "" where all of it is.

    A file without code has no Isa either; so machines count that no engine has read any file of. Beside code that the
    host executes none counts that it does not: npm's packages bring addons for several.
    """
    objects = context.image.objects
    without = [record for record in context.image.files if objects[record.object].isa is None]
    without = [record for record in without if context.closure.runs(record.path)]
    damaged = [record.path for record in without if objects[record.object].error]
    if damaged:
        more = f", nor {len(damaged) - 1} more" if len(damaged) > 1 else ""
        return f"{damaged[0]} could not be read{more}"
    linkages = [objects[record.object].linkage for record in without]
    unknown = {linkage.machine for linkage in linkages if linkage and linkage.type in _LOADED}
    if unknown:
        read = {
            linkage.machine
            for record, linkage in context.linked
            if linkage.type in _LOADED and objects[record.object].isa and context.closure.runs(record.path)
        }
        runs = any(may_execute(context, machine) for machine in read)
        unknown = {machine for machine in unknown - read if not runs or may_execute(context, machine)}
    return f"the instructions of {' and '.join(sorted(unknown))} code were not analysed" if unknown else ""
