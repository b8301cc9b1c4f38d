"""CPU001 to CPU004: the instruction sets that the image's code uses against those of the host's CPU."""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from imgcheck import versions
from imgcheck.check.arch import platform_machine
from imgcheck.check.context import Answers, Context
from imgcheck.check.loader_rules import glibc_of
from imgcheck.documents.facts import Isa, IsaUse, Linkage
from imgcheck.documents.image import FileRecord
from imgcheck.documents.report import Evidence, Finding, Severity
from imgcheck.knowledge import Knowledge, cpus
from imgcheck.knowledge.changes import does
from imgcheck.knowledge.variants import is_variant, variants_among, without_compounds
from imgcheck.loader.glibc import is_libc, is_loader

_HOT_FUNCTIONS = 1000
"""Functions with packed arithmetic from which a library counts as hot, and"""
_HOT_SHARE = 0.025
"""the least share of its functions: what is large has some anywhere. Triton, xgboost and libarrow have 0.001, polars
has 0.006, GDAL 0.008, catboost 0.011; SimpleITK 0.029, OpenCV 0.13, MKL 0.35, libaom 0.32, OpenBLAS 0.17 to 0.33."""
_LOADED = ("executable", "shared")
_BY_GLIBC = "the image's glibc {glibc} compares that mark with the CPU before it runs anything"
_REFUSERS = {
    "glibc": ("The C library", "its note", _BY_GLIBC),
    "": ("The loader", "its note", _BY_GLIBC),
    "itself": ("The program itself", "its start code", "its start code tests for it before it does anything else"),
}
"""Who refuses a CPU, the worst first: by the variant of the predicted error, the name, what asks, and how."""
_BASELINE = "nothing beyond the baseline is required"


class _Need(Struct, frozen=True):
    """What one file wants of the CPU and the CPU lacks or may lack."""

    record: FileRecord
    isa: Isa
    uses: tuple[IsaUse, ...]
    """From the oldest extension to the newest."""


class _Host:
    """The host's CPU as the rules ask it."""

    def __init__(self, context: Context) -> None:
        self.knowledge = context.knowledge
        self.machine = context.host.cpu.architecture.value or platform_machine(context)
        fact = context.host.cpu.features
        self.features = frozenset(fact.value or ()) if fact.known else None
        cpu = context.host.cpu
        model, name = cpu.model.value or "", cpu.microarchitecture.value or ""
        self._known: dict[tuple[str, str], bool | None] = {}
        self.name = f"{model} ({name})" if model and name and model != name else model or name or "the host's CPU"

    def has(self, architecture: str, feature: str) -> bool | None:
        """Whether the CPU has `feature`, None where that is not known."""
        key = (architecture, feature)
        if key not in self._known:
            self._known[key] = self._has(architecture, feature)
        return self._known[key]

    def copes(self, architecture: str, use: IsaUse) -> bool | None:
        """Whether the CPU has what `use` needs, or is of a kind to which the answer does not apply."""
        has = self.has(architecture, use.feature)
        if has or not use.given:
            return has
        kinds = [self._is(architecture, kind) for kind in use.given]
        if True in kinds:
            return has
        return None if None in kinds else True

    def _is(self, architecture: str, kind: tuple[str, ...]) -> bool | None:
        """Whether the CPU has all features of a kind (see IsaUse.given), and lacks all that have "!" before them."""
        found = [
            has if has is None else has != name.startswith("!")
            for name in kind
            for has in (self.has(architecture, name.removeprefix("!")),)
        ]
        return False if False in found else None if None in found else True

    def _has(self, architecture: str, feature: str) -> bool | None:
        if feature in cpus.baseline(self.knowledge, architecture):
            return True
        if self.features is None:
            return None
        if feature in self.features:
            return True
        return False if feature in cpus.features(self.knowledge, architecture) else None


def check(context: Context) -> Answers:
    """All rules of the family, each with one finding per extension, level or library."""
    answers = Answers()
    host = _Host(context)
    code = list(_code(context, host))
    using = [each for each in code if each[2].uses and not _ends_before(host, each[2])]
    unread = _unread(context)
    trapping = _illegal(context, host, using, unread, answers)
    # A file that ends in SIGILL anyway need not be doubted for its newer extensions too.
    doubted = [each for each in using if each[0].path not in trapping]
    _undecided(context, host, doubted, unread, answers)
    _refused(context, host, answers)
    _unused(context, host, code, answers)
    return answers


def _ends_before(host: _Host, isa: Isa) -> bool:
    """Whether the program refuses the CPU by itself (CPU003), so that none of its code traps."""
    return isa.refusal is not None and bool(_lacking(host, isa.refusal.level))


def _code(context: Context, host: _Host) -> Iterator[tuple[FileRecord, Linkage, Isa]]:
    """Files with analysed code that this CPU could execute at all, those that its loader never opens left out."""
    families = _variants(context.knowledge, [record.path for record in context.image.files])
    loaded = context.closure.loaded.items() if families else ()
    by_needed = {path for root, paths in loaded for path in paths if path != root}
    by_name = families.keys() - by_needed
    objects = context.image.objects
    for record, linkage in context.linked:
        isa = objects[record.object].isa
        if isa is None or (host.machine and cpus.feature_architecture(linkage.machine) != host.machine):
            continue
        guard = cpus.guarded_by(context.knowledge, linkage.machine, record.path)
        if guard is not None and (host.features is None or not guard <= host.features):
            continue
        if guard is None and record.path in by_name:
            others = [context.records[path] for path in families[record.path] if path != record.path]
            if linkage.type == "shared" or _is_choice_of_users(context, host, record, others):
                continue
        yield record, linkage, isa


def _variants(knowledge: Knowledge, paths: Sequence[str]) -> dict[str, list[str]]:
    """Files that are one of several variants by their names, as libmkl_avx2.so beside libmkl_def.so, and all of those.

    A name alone says nothing: a program may be called after the CPU that it was built for. Only where another file of
    the same directory differs in such words, or lacks them, is there a choice.
    """
    families: dict[str, list[str]] = defaultdict(list)
    for path in variants_among(knowledge, paths):
        if stem := _stem(knowledge, path):
            families[stem].append(path)
    for stem in families.keys() & set(paths):
        families[stem].append(stem)
    return {path: members for members in families.values() if len(members) > 1 for path in members}


def _stem(knowledge: Knowledge, path: str) -> str:
    """The variant `path` without the words that make it one, and their numbers; "" where that is its directory.

    libggml-cpu-armv8.2_1.so is libggml-cpu.so for some CPUs, _nat_bmi2_adx.so is _nat.so, x86-64-v3-CIE.so is CIE.so.
    """
    directory, name = posixpath.split(path)
    first, *words = re.split(r"(?=[-_.])", without_compounds(knowledge, name))
    kept, behind = [], False
    for word in words:
        behind = is_variant(knowledge, f"{directory}/{first}{word}") or (behind and word[1:].isdigit())
        kept += [] if behind else [word]
    stem = f"{directory}/{first}{''.join(kept)}"
    return "" if is_variant(knowledge, stem) else stem


def _is_choice_of_users(context: Context, host: _Host, variant: FileRecord, others: Iterable[FileRecord]) -> bool:
    """Whether a program is left to who knows the CPU, a person or a script, and one of the others runs there.

    A library that nothing loads by DT_NEEDED is always left to the program that opens it by its name.
    """
    if not context.roots.everything and context.closure.runs(variant.path):
        return False
    codes = [context.image.objects[record.object] for record in others]
    return any(code.isa and code.linkage and _is_runnable(host, code.linkage, code.isa) for code in codes)


def _is_runnable(host: _Host, linkage: Linkage, isa: Isa) -> bool:
    """Whether the CPU has all that a file requires."""
    return all(host.copes(linkage.machine, use) for use in isa.uses if use.answer == "required")


def _needs(
    host: _Host, code: Iterable[tuple[FileRecord, Linkage, Isa]], answer: str, state: bool | None
) -> Iterator[_Need]:
    """Files with uses of `answer` whose extension the CPU lacks (`state` False) or may lack (None)."""
    for record, linkage, isa in code:
        given = [use for use in isa.uses if use.answer == answer]
        wanted = [use.feature for use in given if host.copes(linkage.machine, use) is state] if given else ()
        if wanted:
            uses = {use.feature: use for use in isa.uses if use.answer == answer}
            order = cpus.ranked(host.knowledge, linkage.machine, uses.keys() & set(wanted))
            yield _Need(record, isa, tuple(uses[name] for name in order))


def _illegal(context: Context, host: _Host, code: list, unread: str, answers: Answers) -> set[str]:
    """CPU001; returns the files whose code traps."""
    trapping = [need for need in map(_only_trapping(host), _needs(host, code, "required", False)) if need.uses]
    findings = list(_grouped(context, host, "CPU001", "fail", trapping))
    fine = f"{host.name} has every extension that the code requires" if host.features is not None else _BASELINE
    unknown = unread or _open(context, host, _needs(host, code, "required", None))
    answers.conclude("CPU001", findings, fine, unknown)
    return {need.record.path for need in trapping}


def _only_trapping(host: _Host):
    table = cpus.features(host.knowledge, host.machine)

    def kept(need: _Need) -> _Need:
        trapping = tuple(use for use in need.uses if table[use.feature].without == "trap")
        return _Need(need.record, need.isa, trapping)

    return kept


def _undecided(context: Context, host: _Host, code: list, unread: str, answers: Answers) -> None:
    """CPU002."""
    needs = list(_needs(host, code, "unknown", False))
    findings = list(_grouped(context, host, "CPU002", "risk", needs))
    if host.features is not None:
        # Extensions that no table of ours knows: whether the CPU has them cannot be told.
        findings += _grouped(context, host, "CPU002", "risk", list(_needs(host, code, "required", None)))
    findings += _wrong_results(context, host, code)
    merged = list({finding.subject: finding for finding in reversed(findings)}.values())[::-1]
    beyond = "that this CPU lacks" if host.features is not None else "beyond the baseline"
    fine = f"no undecided use of an extension {beyond}"
    unknown = unread or _open(context, host, _needs(host, code, "unknown", None))
    answers.conclude("CPU002", merged, fine, unknown)


def _wrong_results(context: Context, host: _Host, code: list) -> Iterator[Finding]:
    table = cpus.features(host.knowledge, host.machine)
    needs = []
    for need in _needs(host, code, "required", False):
        silent = tuple(use for use in need.uses if table[use.feature].without == "other-result")
        if silent:
            needs.append(_Need(need.record, need.isa, silent))
    yield from _grouped(context, host, "CPU002", "risk", needs, variant="other-result")


def _grouped(
    context: Context, host: _Host, rule: str, severity: Severity, needs: Iterable[_Need], variant: str = ""
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
    context: Context, host: _Host, rule: str, severity: Severity, subject: str, members: list[_Need], variant: str
) -> Finding:
    first = members[0]
    wanted = {use.feature for need in members for use in need.uses}
    if not variant and rule == "CPU001" and _is_tensorflow(context, first.record):
        variant = "tensorflow"
    return context.finding(
        rule,
        severity,
        subject,
        evidence=tuple(_evidence(context, host, need) for need in members),
        variant=variant,
        feature=cpus.display(host.knowledge, host.machine, [subject]),
        features=cpus.display(host.knowledge, host.machine, wanted),
        path=first.record.path,
        reason=first.uses[0].reason,
        host_cpu=host.name,
        example=_example(host, wanted),
        build=_build(host),
        tensorflow=_words(host, [subject]),
    )


def _evidence(context: Context, host: _Host, need: _Need) -> Evidence:
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


def _open(context: Context, host: _Host, open_needs: Iterable[_Need]) -> str:
    """Why it is open whether the CPU has what reached code that was read needs; "" where it is not."""
    reached = [need for need in open_needs if context.closure.runs(need.record.path)]
    if host.features is not None or not reached:
        return ""
    machine = context.image.facts(reached[0].record).linkage.machine
    names = cpus.display(context.knowledge, machine, {use.feature for need in reached for use in need.uses})
    return f"the image uses {names}, and the host's CPU features are not known"


def _unread(context: Context) -> str:
    """Why code that the command reaches is not known, "" where all of it is.

    A file without code has no Isa either; so machines count that no engine has read any file of.
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
        unknown -= {
            linkage.machine
            for record, linkage in context.linked
            if linkage.type in _LOADED and objects[record.object].isa and context.closure.runs(record.path)
        }
    return f"the instructions of {' and '.join(sorted(unknown))} code were not analysed" if unknown else ""


class _Refused(Struct, frozen=True):
    """A file that is ended on a CPU below a level before it runs, and by whom."""

    record: FileRecord
    level: str
    by: str
    """A key of _REFUSERS."""
    words: str = ""
    """What is printed, where the file tells."""
    glibc: str = ""
    """The version of the C library of its process, where it is known and asked."""


def _refused(context: Context, host: _Host, answers: Answers) -> None:
    """CPU003."""
    refusing = [*_marked(context), *_refusing_themselves(context)]
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


def _marked(context: Context) -> Iterator[_Refused]:
    """Files whose note the loader of their process obeys, and the C library, which obeys its own."""
    for record, linkage in context.linked:
        if linkage.isa_level not in cpus.LEVELS[1:]:
            continue
        glibc, itself = glibc_of(context, record.path), is_libc(linkage) or is_loader(linkage)
        if not itself and not does(context.knowledge, "glibc-compares-isa-note", glibc):
            continue
        if cpus.guarded_by(context.knowledge, linkage.machine, record.path) is None:
            yield _Refused(record, linkage.isa_level, "glibc" if itself else "", glibc=glibc)


def _refusing_themselves(context: Context) -> Iterator[_Refused]:
    for record, _ in context.linked:
        isa = context.image.facts(record).isa
        if isa and isa.refusal and isa.refusal.level in cpus.LEVELS:
            yield _Refused(record, isa.refusal.level, "itself", isa.refusal.words)


def _level_findings(context: Context, host: _Host, refusing: list[_Refused]) -> Iterator[Finding]:
    """One finding per level and refuser: the C library stops every program, the others those with the file."""
    groups: dict[tuple[str, str], list[_Refused]] = defaultdict(list)
    for each in refusing:
        if _lacking(host, each.level):
            groups[each.by, each.level].append(each)
    for (by, level), members in sorted(groups.items(), key=lambda item: ([*_REFUSERS].index(item[0][0]), item[0][1])):
        members.sort(key=lambda each: (context.closure.rank(each.record.path), each.record.path))
        refuser, asks, how = _REFUSERS[by]
        yield context.finding(
            "CPU003",
            "fail",
            subject=f"{by} {level}" if by else level,
            evidence=tuple(context.evidence(each.record, f"{asks} asks for {level}", level=level) for each in members),
            variant=by,
            refuser=refuser,
            level=level,
            path=members[0].record.path,
            words=members[0].words,
            how=how.replace("{glibc}", members[0].glibc or "(version unknown)"),
            host_cpu=host.name,
            host_level=cpus.level_of(host.knowledge, host.features or ()),
            features=cpus.display(host.knowledge, "x86_64", _lacking(host, level)),
            example=_example(host, cpus.level_features(host.knowledge, level)),
            build=_build(host),
        )


def _lacking(host: _Host, level: str) -> frozenset[str]:
    """What the CPU lacks of a level; nothing where its features are not known."""
    return frozenset() if host.features is None else cpus.level_features(host.knowledge, level) - host.features


_POWER_FLOORS = (("arch_3_1", "3.1", "POWER10"), ("arch_3_00", "3.00", "POWER9"))


def _power_floor(context: Context, host: _Host) -> list[tuple[FileRecord, str, str, str]]:
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


def _power_findings(context: Context, host: _Host) -> Iterator[Finding]:
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
            level=generation,
            path=record.path,
            isa=isa,
            generation=generation,
            how="it tests for it before it runs anything",
            host_cpu=host.name,
            host_level="an older ISA",
            features=cpus.display(host.knowledge, "ppc64le", [feature]),
            example="",
            build=_build(host),
        )


def _unused(context: Context, host: _Host, code: list, answers: Answers) -> None:
    """CPU004."""
    hot = [
        (record, linkage, isa)
        for record, linkage, isa in code
        if _is_hot(context, record, isa) and context.closure.runs(record.path)
    ]
    if not hot:
        answers.answer("CPU004", "not-applicable", "the command reaches no library with much vector arithmetic")
        return
    if host.features is None:
        answers.answer("CPU004", "unknown", "the host's CPU features are not known")
        return
    alike: dict[tuple[str, tuple[str, ...]], list[tuple[FileRecord, Linkage, Isa]]] = defaultdict(list)
    for record, linkage, isa in sorted(hot, key=lambda each: -each[2].vector_functions):
        unused = _unused_by(context, host, record, linkage, isa)
        if unused:
            alike[_tensorflow_words(context, record), unused].append((record, linkage, isa))
    findings = [_unused_finding(context, host, *key, files) for key, files in alike.items()]
    answers.conclude("CPU004", findings, "libraries with much vector arithmetic use what this CPU offers")


def _is_hot(context: Context, record: FileRecord, isa: Isa) -> bool:
    """Whether a file is for computing: by its code, or as one of TensorFlow's, which says so itself."""
    if isa.vector_functions < _HOT_FUNCTIONS:
        return False
    return isa.vector_functions >= _HOT_SHARE * isa.functions or bool(_tensorflow_words(context, record))


def _unused_by(context: Context, host: _Host, record: FileRecord, linkage: Linkage, isa: Isa) -> tuple[str, ...]:
    """Vector extensions of the CPU that the file neither was compiled for nor chooses; empty where nothing is lost."""
    table = cpus.features(host.knowledge, linkage.machine)
    used = _compiled_for(host, isa)
    if not _tensorflow_words(context, record):
        chosen = {use.feature for use in isa.uses if use.answer != "required"}
        # What chooses by itself has taken what is of use to it: a codec of whole numbers has none for FMA.
        if any(entry.vector == "gain" for name, entry in table.items() if name in chosen):
            return ()
        used |= chosen
    free = [name for name, entry in table.items() if entry.vector and host.has(linkage.machine, name) is True]
    unused = tuple(name for name in free if name not in used)
    return unused if any(table[name].vector == "gain" for name in unused) else ()


def _unused_finding(
    context: Context,
    host: _Host,
    tensorflow: str,
    unused: tuple[str, ...],
    files: list[tuple[FileRecord, Linkage, Isa]],
) -> Finding:
    """One finding for all `files` that leave the same extensions unused, the one with most vector code first."""
    evidence = tuple(
        context.evidence(
            record,
            f"{isa.vector_functions} vector functions, compiled for {isa.baseline or 'the baseline'}",
            unused=" ".join(unused),
            baseline=isa.baseline,
        )
        for record, _, isa in files
    )
    record, linkage, isa = files[0]
    return context.finding(
        "CPU004",
        "degraded",
        subject=" ".join(unused),
        evidence=evidence,
        variant=tensorflow,
        path=record.path,
        functions=isa.vector_functions,
        features=cpus.display(host.knowledge, linkage.machine, unused),
        words=_words(host, unused),
        build=_build(host),
    )


def _compiled_for(host: _Host, isa: Isa) -> set[str]:
    """Extensions that the file as a whole was compiled for, older ones that those imply included."""
    required = {use.feature for use in isa.uses if use.answer == "required" and not use.given}
    if isa.baseline in cpus.LEVELS:
        required |= cpus.level_features(host.knowledge, isa.baseline)
    elif isa.baseline:
        required.add(isa.baseline)
    if host.machine in ("x86_64", "i386") and any(name.startswith("avx") for name in required):
        # VEX code replaces SSE4 as a whole, whether or not an instruction of it is left.
        required |= {"sse4_1", "sse4_2"}
    return required


def _is_tensorflow(context: Context, record: FileRecord) -> bool:
    """A library of TensorFlow itself, which tests the CPU for what it was compiled with, in its own words."""
    named = any(component.name == "TensorFlow" for component in context.image.components)
    return named and bool(re.search(r"/tensorflow[^/]*/.*\.so|/libtensorflow[^/]*\.so", record.path))


def _tensorflow_words(context: Context, record: FileRecord) -> str:
    """The variant of CPU004 for the words of this TensorFlow; "" where the file is none of its."""
    if not _is_tensorflow(context, record):
        return ""
    found = next(component.version for component in context.image.components if component.name == "TensorFlow")
    return "tensorflow2" if versions.at_least(found, "2") else "tensorflow"


def _words(host: _Host, features: Iterable[str]) -> str:
    """As TensorFlow and others write them: "SSE4.1 SSE4.2 AVX AVX2 AVX512F FMA"."""
    return cpus.display(host.knowledge, host.machine, features).replace(", ", " ").replace("AVX-512", "AVX512")


def _example(host: _Host, wanted: Iterable[str]) -> str:
    """The oldest well-known CPUs that have all of `wanted`: " (Haswell, Zen or later)"."""
    names = cpus.first_with(host.knowledge, host.machine, frozenset(wanted))
    return f" ({' or '.join(names)}, or later)" if names else ""


def _build(host: _Host) -> str:
    """The compiler option that makes code for this CPU."""
    if host.features is None:
        return "compiled for the baseline"
    if host.machine in ("x86_64", "i386"):
        return f"-march={cpus.level_of(host.knowledge, host.features)}"
    return "-mcpu=power8" if host.machine == "ppc64le" else "-march=armv8-a"
