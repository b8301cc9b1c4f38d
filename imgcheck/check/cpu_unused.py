"""CPU004: features of the CPU that libraries with much packed arithmetic leave unused."""

from collections import defaultdict

from imgcheck import versions
from imgcheck.check.context import Answers, Context
from imgcheck.check.cpu_host import CpuHost, build, is_tensorflow, words
from imgcheck.documents.facts import Isa, Linkage
from imgcheck.documents.image import FileRecord
from imgcheck.documents.report import Finding
from imgcheck.knowledge import cpus

_HOT_FUNCTIONS = 500
"""Functions with packed arithmetic from which a library counts as hot."""
_HOT_SHARE = 0.025
"""The least share of a hot library's functions that are such: what is large has some anywhere. Triton, xgboost and
libarrow have 0.001, polars has 0.006, GDAL 0.008, catboost 0.011; SimpleITK 0.029, OpenCV 0.13, MKL 0.35, libaom 0.32,
OpenBLAS 0.17 to 0.33."""
_FIRST_WIDE = "avx"


def left_unused(context: Context, host: CpuHost, code: list, answers: Answers) -> None:
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


def _unused_by(context: Context, host: CpuHost, record: FileRecord, linkage: Linkage, isa: Isa) -> tuple[str, ...]:
    """Vector extensions of the CPU that the file neither was compiled for nor chooses; empty where nothing is lost."""
    table = cpus.features(host.knowledge, linkage.machine)
    used = _compiled_for(host, isa)
    if not _tensorflow_words(context, record):
        used |= {use.feature for use in isa.uses if use.answer != "required"}
        # What chooses by itself has taken what is of use to it: a codec of whole numbers has none for FMA. Who chooses
        # the first wide vectors alone may be older than the others.
        chosen = [entry for use in isa.uses if use.answer == "dispatched" and (entry := table.get(use.feature))]
        if any(entry.vector == "gain" and entry.id != _FIRST_WIDE for entry in chosen):
            return ()
    free = [name for name, entry in table.items() if entry.vector and host.has(linkage.machine, name) is True]
    unused = tuple(name for name in free if name not in used)
    return unused if any(table[name].vector == "gain" for name in unused) else ()


def _unused_finding(
    context: Context,
    host: CpuHost,
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
        words=words(host, unused),
        build=build(host),
    )


def _compiled_for(host: CpuHost, isa: Isa) -> set[str]:
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


def _tensorflow_words(context: Context, record: FileRecord) -> str:
    """The variant of CPU004 for the words of this TensorFlow; "" where the file is none of its."""
    if not is_tensorflow(context, record):
        return ""
    found = next(component.version for component in context.image.components if component.name == "TensorFlow")
    return "tensorflow2" if versions.at_least(found, "2") else "tensorflow"
