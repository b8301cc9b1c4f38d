"""GPU013: the library by which the driver compiles PTX, where PTX is all that fits a GPU."""

from collections.abc import Iterator

from imgcheck.check.context import Answers
from imgcheck.check.gpu_case import Case, Kind
from imgcheck.check.gpu_targets import Judged, capability_option, evidence_of, judge
from imgcheck.documents.report import Finding, Severity
from imgcheck.knowledge.changes import does

_COMPILER = "libnvidia-ptxjitcompiler.so"


def no_compiler(case: Case, answers: Answers) -> None:
    """GPU013: PTX must be compiled, and the driver's compiler library is not where the loader looks."""
    if not case.context.host.gpus.known:
        return answers.answer("GPU013", "unknown", "the host's GPUs are not known")
    if case.opened is None or case.opened.stub:
        return answers.answer("GPU013", "not-applicable", "no driver library would be opened (GPU007)")
    dependent = {kind: _compiled(case, kind) for kind in case.kinds}
    if not any(dependent.values()):
        return answers.answer("GPU013", "not-applicable", "no file depends on PTX for the host's GPUs")
    path = next((path for name, path in case.context.closure.opens.items() if name.startswith(_COMPILER)), "")
    if path:
        return answers.answer("GPU013", "ok", f"{path} compiles the PTX")
    driver = case.opened.driver
    if not does(case.knowledge, "driver-opens-ptx-compiler", driver):
        which = f"driver {driver}" if driver else case.opened.path
        return answers.answer("GPU013", "unknown", f"whether {which} needs a library to compile PTX is not known")
    findings = [finding for kind, files in dependent.items() if files for finding in _finding(case, kind, files)]
    return answers.conclude("GPU013", findings, "")


def _compiled(case: Case, kind: Kind) -> list[Judged]:
    return [each for each in judge(case, kind) if each.tally.best == "jit" and each.role != "optional"]


def _finding(case: Case, kind: Kind, files: list[Judged]) -> Iterator[Finding]:
    assert case.opened is not None
    yield case.context.finding(
        "GPU013",
        _severity(case),
        kind.label,
        tuple(case.context.evidence(each.record, evidence_of(each)) for each in files),
        gpu=kind.label,
        capability=kind.capability,
        path=case.opened.path,
        source="comes from the image" if not case.opened.injected else "is injected without it",
        option=capability_option(case, kind),
    )


def _severity(case: Case) -> Severity:
    """It fails where no kind of GPU of the host runs the image's own code natively."""
    judged = [each for kind in case.kinds for each in judge(case, kind)]
    own = [each for each in judged if each.role == "own"] or judged
    return "risk" if any(each.tally.best == "native" for each in own) else "fail"
