"""GPU003, GPU004, GPU008, GPU010: the image's GPU code against the host's GPUs."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from msgspec import Struct

from imgcheck.check.context import Answers
from imgcheck.check.gpu_case import Case, Kind
from imgcheck.check.gpu_code import Tally, capability_of, chosen_ptx, describe, tally
from imgcheck.documents.facts import GpuCode
from imgcheck.documents.image import Component, FileRecord
from imgcheck.documents.report import Evidence, Finding, Severity
from imgcheck.knowledge import Knowledge, cuda, gpus
from imgcheck.knowledge.changes import does
from imgcheck.versions import compare, parse

_OPEN_FEATURES = 4
"""Names come from images; targets have two features, sramecc and xnack."""

AmdFit = Literal["yes", "no", "undecided"]


class Weighed(Struct, frozen=True):
    """One file against one kind of GPU."""

    record: FileRecord
    code: GpuCode
    role: str
    """`own` code, of a `vendor` library, or of an `optional` vendor library that serves some GPUs alone by design."""

    @property
    def runs(self) -> bool:
        """Whether something in it runs on the GPU."""
        raise NotImplementedError


class Judged(Weighed, frozen=True):
    """One file against one kind of NVIDIA's GPUs."""

    tally: Tally

    @property
    def runs(self) -> bool:
        """As for any file."""
        return self.tally.best in ("native", "jit")


class JudgedAmd(Weighed, frozen=True):
    """One file against one kind of AMD's GPUs."""

    fit: AmdFit

    @property
    def runs(self) -> bool:
        """As for any file."""
        return self.fit == "yes"


_Weighed = TypeVar("_Weighed", bound=Weighed)


def no_code(case: Case, answers: Answers) -> None:
    """GPU003: no machine code and no PTX for a GPU of the host."""
    if not case.context.host.gpus.known:
        return answers.answer("GPU003", "unknown", f"the host's GPUs are not known; the image has {_targets(case)}")
    findings = [finding for kind in case.kinds for finding in _no_code(case, kind)]
    findings += _no_amd_code(case)
    return answers.conclude("GPU003", findings, _fitting(case), _without_capability(case))


def _no_code(case: Case, kind: Kind) -> Iterator[Finding]:
    judged = judge(case, kind)
    missing = [each for each in judged if each.tally.best in ("none", "undecided")]
    bad, severity = _weigh(case, judged, missing, _running(case))
    if not bad:
        return
    if all(each.tally.best == "undecided" for each in bad) and severity == "fail":
        severity = "risk"
    yield case.context.finding(
        "GPU003",
        severity,
        kind.label,
        tuple(case.context.evidence(each.record, evidence_of(each)) for each in bad),
        variant=case.wording() or _wording(bad),
        gpu=kind.label,
        capability=kind.capability,
        targets=describe(_union(each.code for each in bad)),
        needed=_needed(kind),
        option=capability_option(case, kind),
        supported=_supported(bad),
    )


def _wording(bad: Sequence[Judged]) -> str:
    """The variant for relocatable code: of what the driver cannot link it finds no kernel by its name."""
    modules = [module for each in bad for module in each.code.modules]
    return "relocatable" if all(module.objects for module in modules) else ""


def evidence_of(each: Judged) -> str:
    """What a file has for the GPU, in words."""
    undecided = each.tally.count("undecided")
    runs = each.tally.count("native") + each.tally.count("jit")
    note = f", {undecided} undecided (a Tegra part, PTX of several versions, or not readable)" if undecided else ""
    return f"{runs} of {each.tally.total} modules have code for this GPU{note}: {describe(each.code)}"


def judge(case: Case, kind: Kind) -> list[Judged]:
    """Every file with code for NVIDIA GPUs against `kind`; none where its capability is not known."""
    if not kind.capability:
        return []
    if kind not in case.judged:  # several rules ask
        newest = case.driver_cuda.newest  # what it may be less leaves GPU008 open
        case.judged[kind] = [
            Judged(record, code, _role(case, record), tally(case.knowledge, code, kind.capability, newest))
            for record, code in case.code
        ]
    return case.judged[kind]


def _role(case: Case, record: FileRecord) -> str:
    name = record.path.rpartition("/")[2]
    found = [entry for entry in cuda.vendor_libraries(case.knowledge) if name.startswith(entry.sonames)]
    if not found:
        return "own"
    return "optional" if all(entry.optional for entry in found) else "vendor"


def _weigh(
    case: Case, judged: Sequence[_Weighed], bad: Sequence[_Weighed], runs_elsewhere: set[str]
) -> tuple[Sequence[_Weighed], Severity]:
    """Which of the files that lack code count, and how much.

    Files that the command reaches go before others. Where nothing of the image's own code runs it fails, unless another
    kind of GPU in the host runs it; a library that serves only some GPUs by design counts for nothing then but
    information. What adds a little to a library that does not run is of no use without it. Of files beside each other
    whose names differ in numbers alone (`k_sm80.cubin`, `app_sm90`) one is opened or started: the best of them counts.
    """
    closure = case.context.closure
    serving = {_variant(each) for each in judged if each.runs and closure.reach(each.record.path) != "unreached"}
    bad = [each for each in bad if closure.runs(each.record.path) or _variant(each) not in serving]
    reached = [each for each in judged if closure.runs(each.record.path)]
    paths, pool = _paths(reached), judged
    if not paths.isdisjoint(_paths(bad)):
        pool, bad = reached, [each for each in bad if each.record.path in paths]
    own = [each for each in pool if each.role == "own"] or [each for each in pool if each.role == "vendor"] or pool
    own = [each for each in own if not (each.runs and _adds_to(case, each, bad))]
    certain = not any(each.runs for each in own)
    if certain and not _paths(own).isdisjoint(_paths(bad)):
        return bad, "risk" if _paths(own) & runs_elsewhere else "fail"
    return bad, "risk" if any(each.role != "optional" for each in bad) else "info"


def _variant(file: Weighed) -> tuple[str, str]:
    directory, _, name = file.record.path.rpartition("/")
    return directory, re.sub(r"\d+[af]?", "#", name)


def _adds_to(case: Case, file: Weighed, bad: Sequence[Weighed]) -> bool:
    """Whether a file needs one of `bad` that has more modules than itself, as torchvision's _C.so needs PyTorch's."""
    larger = {each.record.path for each in bad if _size(each) > _size(file)}
    needed, waiting = {file.record.path}, [file.record.path] if larger else []
    while waiting:
        path = waiting.pop()
        record = case.context.records.get(path)
        linkage = case.context.image.facts(record).linkage if record else None
        chosen = (case.context.closure.chosen.get((path, name), "") for name in (linkage.needed if linkage else ()))
        new = set(chosen) - needed
        needed |= new
        waiting += new
    return not larger.isdisjoint(needed)


def _size(file: Weighed) -> int:
    return sum(module.count for module in file.code.modules)


def _paths(files: Iterable[Weighed]) -> set[str]:
    return {each.record.path for each in files}


def _running(case: Case) -> set[str]:
    """The files that some kind of NVIDIA's GPUs in the host runs."""
    return {each.record.path for kind in case.kinds for each in judge(case, kind) if each.runs}


def _needed(kind: Kind) -> str:
    major = kind.capability.partition(".")[0]
    return f"SASS of {major}.x up to {kind.capability}, or PTX up to {kind.capability} that its driver reads"


def capability_option(case: Case, kind: Kind) -> str:
    """The build option that adds machine code for `kind`."""
    digits = kind.capability.replace(".", "")
    if "TensorFlow" in case.components:
        return f"TF_CUDA_COMPUTE_CAPABILITIES={kind.capability}"
    if "PyTorch" in case.components:
        return f'TORCH_CUDA_ARCH_LIST="{kind.capability}"'
    return f"nvcc -gencode arch=compute_{digits},code=sm_{digits}"


def _supported(bad: Iterable[Judged]) -> str:
    own = sorted({capability_of(t) for each in bad for m in each.code.modules for t in m.sass} - {""}, key=parse)
    virtual = {entry.partition("@")[0] for each in bad for module in each.code.modules for entry in module.ptx}
    ptx = sorted({capability_of(target) for target in virtual} - {""}, key=parse)
    parts = [f"compute capability {', '.join(own)}"] if own else []
    parts += [f"{ptx[0]} or newer"] if ptx else []
    return " or ".join(parts) or "another kind"


def _union(codes: Iterable[GpuCode]) -> GpuCode:
    return GpuCode(modules=tuple(module for code in codes for module in code.modules))


def _targets(case: Case) -> str:
    if case.code:
        return describe(_union(code for _, code in case.code))
    return ", ".join(sorted({target for _, code in case.amd_code for target in code.amd})) or "no code of its own"


def _without_capability(case: Case) -> str:
    kinds = [kind.label for kind in case.kinds if not kind.capability]
    return f"the compute capability of {', '.join(kinds)} is not known" if kinds and case.code else ""


def _fitting(case: Case) -> str:
    if not case.code:
        return "no file has GPU code of its own" if not case.amd_code else "the image has code for the host's AMD GPUs"
    parts = []
    for kind in case.kinds:
        counts = [each.tally for each in judge(case, kind)]
        runs = sum(each.count("native") + each.count("jit") for each in counts)
        parts.append(f"{runs} of {sum(each.total for each in counts)} modules have code for {kind.label}")
    return "; ".join(parts)


def _no_amd_code(case: Case) -> Iterator[Finding]:
    judged = {kind: _judge_amd(case, kind) for kind in case.amd_kinds}
    running = {each.record.path for files in judged.values() for each in files if each.runs}
    if case.kinds and case.wants_nvidia:  # the image may be for the other GPUs
        running |= {record.path for record, _ in case.amd_code}
    for kind, files in judged.items():
        bad, severity = _weigh(case, files, [each for each in files if not each.runs], running)
        if not bad:
            continue
        undecided = any(each.fit == "undecided" for each in bad)
        if severity == "fail" and all(each.fit == "undecided" for each in bad):
            severity = "risk"
        note = "; whether the GPU runs with the features that they ask for is not known" if undecided else ""
        offered = ", ".join(sorted({target for each in bad for target in each.code.amd}))
        yield case.context.finding(
            "GPU003",
            severity,
            kind.label,
            tuple(case.context.evidence(each.record, f"code for {', '.join(each.code.amd)}") for each in bad),
            variant="amd",
            gpu=kind.label,
            capability=kind.target,
            targets=offered + note,
            needed=f"code for exactly {kind.target}",
            option=f"--offload-arch={kind.target}",
            supported=offered,
        )


def _judge_amd(case: Case, kind: Kind) -> list[JudgedAmd]:
    """Every file with code for AMD's GPUs against `kind`: each has to hold code for it."""
    return [
        JudgedAmd(record, code, _role(case, record), _best_amd(case.knowledge, set(code.amd), kind))
        for record, code in case.amd_code
    ]


def _best_amd(knowledge: Knowledge, offered: set[str], kind: Kind) -> AmdFit:
    """Whether one of the targets fits, whatever those features are that the host's target does not tell.

    xnack is such a one: a mode of the process (HSA_XNACK), which the kernel does not list.
    """
    if not kind.target:
        return "undecided"
    told = {feature[:-1] for feature in kind.target.split(":")[1:]}
    asked = {feature[:-1] for target in offered for feature in target.split(":")[1:]}
    open_features = sorted(asked - told)[:_OPEN_FEATURES]
    settings = itertools.product("+-", repeat=len(open_features))
    hosts = [":".join([kind.target, *map("".join, zip(open_features, signs, strict=True))]) for signs in settings]
    answers = {any(amd_fits(knowledge, target, host) for target in offered) for host in hosts}
    return "undecided" if len(answers) > 1 else "yes" if True in answers else "no"


def amd_fits(knowledge: Knowledge, target: str, host: str) -> bool:
    """Whether code for AMD `target` ("gfx90a:xnack-", "gfx11-generic") runs on `host` ("gfx90a:sramecc+:xnack-").

    A feature that the code names must be set so on the host; one that it does not name may be either.
    """
    name, *wanted = target.split(":")
    own, *present = host.split(":")
    if name != own and own not in gpus.amd_generics(knowledge).get(name, ()):
        return False
    return set(wanted) <= set(present)


def only_ptx(case: Case, answers: Answers) -> None:
    """GPU004: only PTX for a GPU, which the driver compiles at first start."""
    if not case.context.host.gpus.known:
        return answers.answer("GPU004", "unknown", "the host's GPUs are not known")
    if not case.code:
        return answers.answer("GPU004", "not-applicable", "no file has GPU code of its own")
    findings = []
    for kind in case.kinds:
        jit = [each for each in judge(case, kind) if each.tally.best == "jit" and each.role != "optional"]
        if jit:
            findings.append(
                case.context.finding(
                    "GPU004",
                    "degraded",
                    kind.label,
                    tuple(case.context.evidence(each.record, evidence_of(each)) for each in jit),
                    gpu=kind.label,
                    capability=kind.capability,
                    targets=describe(_union(each.code for each in jit)),
                )
            )
    fine = "no file depends on PTX for the host's GPUs"
    return answers.conclude("GPU004", findings, fine, _without_capability(case))


def ptx_too_new(case: Case, answers: Answers) -> None:
    """GPU008: PTX is all there is for a GPU, and the driver does not read its version."""
    if not case.context.host.gpus.known:
        return answers.answer("GPU008", "unknown", "the host's GPUs are not known")
    if not case.code:
        return answers.answer("GPU008", "not-applicable", "no file has GPU code of its own")
    findings: list[Finding] = []
    dependent = undecided = False
    for kind in case.kinds:
        judged = judge(case, kind)
        compiled = [each for each in judged if each.tally.best == "jit"]
        dependent = dependent or bool(compiled)
        undecided = undecided or any(not _surely_reads(case, kind, each) for each in compiled)
        findings += _too_new(case, kind, judged)
    unknown = _without_capability(case)
    if undecided:
        unknown = "PTX is all there is for the host's GPU, and which PTX its driver reads is not known"
    fine = "the driver reads the PTX that is needed" if dependent else "no file depends on PTX for the host's GPUs"
    return answers.conclude("GPU008", findings, fine, unknown)


def _surely_reads(case: Case, kind: Kind, compiled: Judged) -> bool:
    """Whether a driver reads PTX that is compiled also where its CUDA is the oldest that it may be."""
    driver = case.driver_cuda
    if not driver.oldest or driver.oldest == driver.newest:
        return bool(driver.oldest)
    return tally(case.knowledge, compiled.code, kind.capability, driver.oldest).best == "jit"


def _too_new(case: Case, kind: Kind, judged: list[Judged]) -> Iterator[Finding]:
    newer = [each for each in judged if each.tally.best == "too-new"]
    bad, severity = _weigh(case, judged, newer, _running(case))
    if not bad:
        return
    isas = {
        isa
        for each in bad
        for module in each.code.modules
        for ptx in (module.ptx, *(part.ptx for part in module.objects))
        for isa in chosen_ptx(case.knowledge, ptx, kind.capability, case.driver_cuda.newest)
    }
    isa = min(isas, key=parse)
    needed = cuda.ptx_cuda(case.knowledge, isa)
    driver = case.opened.driver if case.opened else ""
    old = driver and not does(case.knowledge, "driver-names-newer-ptx", driver)
    yield case.context.finding(
        "GPU008",
        severity,
        kind.label,
        tuple(case.context.evidence(each.record, evidence_of(each)) for each in bad),
        variant="before-450" if old else "",
        gpu=kind.label,
        capability=kind.capability,
        isa=isa,
        needed_cuda=needed or "newer than any known",
        driver_cuda=case.driver_cuda.newest,
        newest=cuda.newest_ptx(case.knowledge, case.driver_cuda.newest) or "no version known",
        min_driver=(cuda.first_driver(case.knowledge, needed) if needed else None) or "of a newer branch",
        option=capability_option(case, kind),
    )


def framework_minimum(case: Case, answers: Answers) -> None:
    """GPU010: a framework refuses a GPU below the lowest compute capability that it was built for."""
    demanding = [c for c in case.context.image.components if c.minimum_capability]
    if not demanding:
        return answers.answer("GPU010", "not-applicable", "no framework of the image names a minimum capability")
    if not case.context.host.gpus.known:
        return answers.answer("GPU010", "unknown", "the host's GPUs are not known")
    findings = [finding for component in demanding for finding in _below(case, component)]
    kinds = [kind.label for kind in case.kinds if not kind.capability]
    unknown = f"the compute capability of {', '.join(kinds)} is not known" if kinds else ""
    names = ", ".join(f"{component.name} ({component.minimum_capability})" for component in demanding)
    return answers.conclude("GPU010", findings, f"the host's GPUs reach the minimum of {names}", unknown)


def _below(case: Case, component: Component) -> Iterator[Finding]:
    low = [k for k in case.kinds if k.capability and compare(k.capability, component.minimum_capability) < 0]
    variant = component.name.lower() if component.name in ("TensorFlow", "PyTorch") else ""
    for kind in low:
        yield case.context.finding(
            "GPU010",
            "fail" if len(low) == len(case.kinds) else "risk",
            f"{component.name} on {kind.label}",
            (_component_evidence(case, component),),
            variant=variant,
            framework=component.name,
            gpu=kind.label,
            name=kind.name,
            capability=kind.capability,
            minimum=component.minimum_capability,
            built_for=", ".join(component.built_for) or component.minimum_capability,
        )


def _component_evidence(case: Case, component: Component) -> Evidence:
    detail = f"built for {', '.join(component.built_for)}" if component.built_for else "names its minimum"
    return case.context.evidence_at(component.path, detail)
