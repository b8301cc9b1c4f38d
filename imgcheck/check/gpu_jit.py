"""GPU013: the library by which the driver compiles PTX, where PTX is all that fits a GPU."""

import posixpath

from imgcheck.check.context import Answers
from imgcheck.check.gpu_case import Case, Kind, Opened, driver_version
from imgcheck.check.gpu_targets import Judged, capability_option, evidence_of, judge
from imgcheck.documents.report import Finding, Severity
from imgcheck.knowledge.changes import does
from imgcheck.versions import compare, parse

_COMPILER = "libnvidia-ptxjitcompiler.so.1"


def no_compiler(case: Case, answers: Answers) -> None:
    """GPU013: PTX must be compiled, and what the loader finds for it is nothing, or of another driver."""
    if not case.context.host.gpus.known:
        return answers.answer("GPU013", "unknown", "the host's GPUs are not known")
    if case.opened is None or case.opened.stub:
        return answers.answer("GPU013", "not-applicable", "no driver library would be opened (GPU007)")
    dependent = {kind: _compiled(case, kind) for kind in case.kinds}
    if not any(dependent.values()):
        return answers.answer("GPU013", "not-applicable", "no file depends on PTX for the host's GPUs")
    driver, path = case.opened.driver, _compiler_of(case, case.opened)
    if not does(case.knowledge, "driver-opens-ptx-compiler", driver):
        if path:
            return answers.answer("GPU013", "ok", f"{path} is there for the PTX")
        which = f"driver {driver}" if driver else case.opened.path
        return answers.answer("GPU013", "unknown", f"whether {which} needs a library to compile PTX is not known")
    version = driver_version(path) or (case.host_driver if path in case.context.closure.injected else "")
    if path and not version:
        return answers.answer("GPU013", "unknown", f"of which driver {path} is, which compiles the PTX, is not known")
    if path and compare(version, driver) == 0:
        return answers.answer("GPU013", "ok", f"{path} compiles the PTX")
    needing = [(kind, files) for kind, files in dependent.items() if files]
    return answers.conclude("GPU013", [_finding(case, kind, files, path, version) for kind, files in needing], "")


def _compiler_of(case: Case, opened: Opened) -> str:
    """What the driver opens to compile PTX; "" where nothing is there. cuda-compat has its own beside its libcuda."""
    if opened.compat and opened.record:
        beside = f"{posixpath.dirname(opened.path)}/{_COMPILER.removesuffix('.1')}.{opened.driver}"
        if beside in case.context.records:
            return beside
    return case.context.closure.opens.get(_COMPILER, "")


def _compiled(case: Case, kind: Kind) -> list[Judged]:
    return [each for each in judge(case, kind) if each.tally.best == "jit" and each.role != "optional"]


def _finding(case: Case, kind: Kind, files: list[Judged], compiler: str, version: str) -> Finding:
    assert case.opened is not None
    severity = _severity(case)
    if compiler and parse(version)[:1] == parse(case.opened.driver)[:1]:
        severity = "risk"  # of two releases of one branch nobody has seen it fail
    return case.context.finding(
        "GPU013",
        severity,
        kind.label,
        tuple(case.context.evidence(each.record, evidence_of(each)) for each in files),
        variant="other" if compiler else "",
        gpu=kind.label,
        capability=kind.capability,
        state=_state(case.opened, compiler),
        option=capability_option(case, kind),
    )


def _state(opened: Opened, compiler: str) -> str:
    if compiler:
        return f"The loader finds {compiler}, which is of another driver than {opened.path} ({opened.driver})"
    source = "is injected without it" if opened.injected else "comes from the image"
    return f"The loader finds none, and the libcuda that would be opened, {opened.path}, {source}"


def _severity(case: Case) -> Severity:
    """It fails where no kind of GPU of the host runs the image's own code natively."""
    judged = [each for kind in case.kinds for each in judge(case, kind)]
    own = [each for each in judged if each.role == "own"] or judged
    return "risk" if any(each.tally.best == "native" for each in own) else "fail"
