"""GPU001, GPU002, GPU005-GPU007, GPU009, GPU012: the driver library that would be opened, and what asks for more."""

import posixpath
from collections.abc import Iterator

from msgspec import structs

from imgcheck.check.context import Answers
from imgcheck.check.gpu_case import Case, Kind, Opened, compat_serves, driver_version
from imgcheck.check.gpu_require import Facts, disabled, evaluate_all, requirements
from imgcheck.check.runtime_gpu import legacy_hook
from imgcheck.documents.facts import LIBCUDA, Linkage
from imgcheck.documents.image import FileRecord
from imgcheck.documents.report import Evidence, Finding, Outcome, Severity
from imgcheck.knowledge import cuda, gpus
from imgcheck.knowledge.changes import does
from imgcheck.knowledge.frameworks import framework_of
from imgcheck.versions import compare, compare_drivers, parse

_NVML = "libnvidia-ml.so.1"
_COMPAT_BRANDS = frozenset(["tesla", "nvidia", "quadro", "quadrortx", "nvidiartx", ""])
"""Brands that forward compatibility may serve; GeForce and TITAN never are."""

_AT_START = "bound at start"


def mismatch(case: Case, answers: Answers) -> None:
    """GPU001: the libcuda that would be opened does not match the kernel module."""
    opened = case.opened
    if opened is None or opened.stub:
        return answers.answer("GPU001", "not-applicable", "no driver library would be opened (GPU007)")
    if opened.compat:
        return answers.answer("GPU001", "not-applicable", "cuda-compat would be opened (GPU006)")
    if not case.kernel_driver:
        return _kernel_not_known(case, answers, opened)
    if not opened.driver:
        return answers.answer("GPU001", "unknown", f"the driver version of {opened.path} is not known")
    findings = [*_library_mismatch(case, opened), *_nvml_mismatch(case)]
    where = "the host's" if opened.injected else "the image's"
    fine = f"{where} {opened.path} and the kernel module are both of driver {case.kernel_driver}"
    by_branch = compare_drivers(case.kernel_driver, opened.driver) is None
    unknown = f"{opened.path} is of driver {opened.driver}, the kernel module of {case.kernel_driver}: a branch alone"
    return answers.conclude("GPU001", findings, fine, unknown if by_branch else "")


def _kernel_not_known(case: Case, answers: Answers, opened: Opened) -> None:
    if case.context.host.driver.kernel_module.absent:
        answers.answer("GPU001", "not-applicable", "the host has no NVIDIA kernel module (GPU007)")
    elif opened.injected:
        answers.answer("GPU001", "ok", "the host's own driver library would be opened")
    else:
        version = f" of driver {opened.driver}" if opened.driver else ""
        answers.answer(
            "GPU001", "unknown", f"the image's {opened.path}{version} would be opened; the host's driver is not known"
        )


def _library_mismatch(case: Case, opened: Opened) -> Iterator[Finding]:
    if not compare_drivers(case.kernel_driver, opened.driver):
        return
    variant = case.framework(("TensorFlow",))
    if not variant and not does(case.knowledge, "driver-names-its-mismatch", opened.driver):
        variant = "before-460"
    yield _mismatch(case, LIBCUDA, opened.path, opened.driver, opened.record, variant)


def _nvml_mismatch(case: Case) -> Iterator[Finding]:
    """NVML of the image is opened by monitoring alone, so another version of it is a risk at most."""
    path = case.context.closure.opens.get(_NVML)
    record = case.context.records.get(path or "")
    version = driver_version(path or "")
    bundled = record is not None and path not in case.context.closure.injected
    if record and bundled and version and compare_drivers(case.kernel_driver, version):
        yield _mismatch(case, _NVML, record.path, version, record, "nvml")


def _mismatch(case: Case, library: str, path: str, version: str, record: FileRecord | None, variant: str) -> Finding:
    detail = f"driver {version}, kernel module {case.kernel_driver}"
    return case.context.finding(
        "GPU001",
        "risk" if library == _NVML else "fail",
        library,
        (_opened_evidence(case, path, record, detail),),
        variant=variant,
        library=library,
        path=path,
        image_driver=version,
        kernel_driver=case.kernel_driver,
        image_long=_three(version),
        kernel_long=_three(case.kernel_driver),
    )


def _three(version: str) -> str:
    """As TensorFlow prints driver versions: "396.44" is "396.44.0"."""
    parts = version.split(".")
    return ".".join([*parts, *["0"] * (3 - len(parts))])


def _opened_evidence(case: Case, path: str, record: FileRecord | None, detail: str) -> Evidence:
    """Evidence at the library that is opened; the loader's answer is its reach, whatever else names it."""
    if record is None:
        return Evidence(path=path, detail=detail + " (from the host)")
    found = case.context.evidence(record, detail)
    return structs.replace(found, reach="entry", detail=detail)


def no_library(case: Case, answers: Answers) -> None:
    """GPU007: no libcuda.so.1, or only a stub, or no kernel module to serve it."""
    opened, host, runtime = case.opened, case.context.host, case.context.runtime
    if opened and not opened.stub:
        if host.driver.kernel_module.absent:
            why = f"{opened.path} would be opened, but the host has no NVIDIA kernel module."
            return answers.conclude("GPU007", _no_library(case, why, "Load the NVIDIA driver on the host."), "")
        where = "from the host" if opened.injected else "of the image"
        return answers.answer("GPU007", "ok", f"{opened.path} {where} would be opened")
    if opened:
        why = f"{opened.path} is the toolkit's link stub, without any driver behind it, and comes first."
        way_out = f"Take the directory of {opened.path} out of LD_LIBRARY_PATH and ld.so.conf."
        return answers.conclude("GPU007", _no_library(case, why, way_out, "stub", opened), "")
    if not host.driver.kernel_module.absent and not _driver_known(case):
        unknown = "what the runtime would inject" if runtime.injects_driver else "whether the host has a GPU"
        return answers.answer("GPU007", "unknown", f"the image has no libcuda, and {unknown} is not known")
    return answers.conclude("GPU007", _no_library(case, _absence(case), _way_out(case)), "")


def _driver_known(case: Case) -> bool:
    """Whether enough is known to say that no library would be there: of the driver, or without injection of a GPU."""
    driver, runtime = case.context.host.driver, case.context.runtime
    known = driver.kernel_module.known or driver.userland.known or driver.userland.absent or driver.cuda.known
    return known or (not runtime.injects_driver and bool(case.kinds))


def _absence(case: Case) -> str:
    runtime = case.context.runtime
    if case.context.host.driver.kernel_module.absent:
        return "The host has no NVIDIA driver."
    if not runtime.injects_driver:
        return f"{runtime.title} injects no driver library, and the loader finds no libcuda.so.1 in the image."
    unset = [name for name in runtime.requires_environment if name not in case.environment]
    if unset and not runtime.environment_option:
        return f"{runtime.title}: the image does not set {' and '.join(unset)}, so nothing is injected."
    return f"{runtime.title} has no libcuda.so.1 to inject from this host, or puts it where the loader does not look."


def _way_out(case: Case) -> str:
    if case.context.host.driver.kernel_module.absent:
        return "Install the NVIDIA driver on the host, or run on a node that has it."
    unset = [name for name in case.context.runtime.requires_environment if name not in case.environment]
    if case.context.runtime.injects_driver and unset:
        return f"Set {' and '.join(f'{name}=all' for name in unset)}."
    injecting = case.context.knowledge.runtimes.get(case.context.runtime.with_driver)
    if injecting:
        return f"Let the runtime inject the host's driver: {injecting.started} (`--runtime {injecting.id}` here)."
    return "Let the runtime inject the host's driver (docker --gpus all, apptainer --nv, udocker setup --nvidia)."


def _no_library(
    case: Case, reason: str, way_out: str, variant: str = "", opened: Opened | None = None
) -> Iterator[Finding]:
    """One finding at what needs the library; files that name it as needed do not even start."""
    linked = {record.path for record in case.linked}
    users = [record for record in case.gpu_files if record.path in linked] or list(case.gpu_files)
    if not variant:
        reached = any(case.context.closure.runs(path) for path in linked)
        absent = case.opened is None
        variant = "linked" if reached and absent else case.framework()
        if variant == "tensorflow" and not absent:
            variant = "tensorflow-moduleless"
    evidence = [case.context.evidence(record, "needs libcuda.so.1") for record in users]
    if opened:
        evidence.insert(0, _opened_evidence(case, opened.path, opened.record, "link stub"))
    yield case.context.finding(
        "GPU007", "fail", LIBCUDA, tuple(evidence), variant=variant, reason=reason, way_out=way_out
    )


def runtime_version(case: Case, answers: Answers) -> None:
    """GPU002: the driver is too old for the CUDA runtime."""
    if not case.runtimes:
        return answers.answer("GPU002", "not-applicable", "no file of the image uses a CUDA runtime")
    opened = case.opened
    if opened is None or opened.stub:
        return answers.answer("GPU002", "not-applicable", "no driver library would be opened (GPU007)")
    versions = sorted({use.version for use in case.runtimes}, key=parse)
    if not opened.cuda.oldest:
        why = f"the image needs CUDA {versions[-1]}; the CUDA version of {opened.path} is not known"
        return answers.answer("GPU002", "unknown", why)
    lacks = [(version, *_lack(case, opened, version)) for version in versions]
    findings = [
        _runtime_finding(case, opened, version, asked, outcome)
        for version, outcome, asked in lacks
        if outcome == "fail" or outcome == "risk"
    ]
    unknown = "; ".join(why for _, outcome, why in lacks if outcome == "unknown")
    fine = f"CUDA {', '.join(versions)} of the image runs on the driver's CUDA {opened.cuda}"
    return answers.conclude("GPU002", findings, fine, unknown)


def _lack(case: Case, opened: Opened, version: str) -> tuple[Outcome, str]:
    """How the driver falls short of a CUDA runtime, and what that asks; or that it is open, and why."""
    floor, documented = cuda.runtime_floor(case.knowledge, version), cuda.min_driver(case.knowledge, version)
    if floor is None:
        return "unknown", f"what CUDA {version} demands of the driver is not known"
    enough = not floor or opened.cuda.reaches(floor)
    if enough is None:
        return "unknown", f"CUDA {version} asks for a driver of CUDA {floor}, {opened.path} is of {opened.cuda}"
    if not enough:
        return "fail", f"the driver for CUDA {floor} or newer"
    if not documented or not opened.driver or opened.compat:
        return "ok", ""
    order = compare_drivers(opened.driver, documented)
    if order is None:
        why = f"CUDA {version} asks for driver {documented}, and of {opened.driver} the branch alone is known"
        return "unknown", why
    return ("risk", f"for driver {documented} or newer, by its documentation") if order < 0 else ("ok", "")


def _runtime_finding(case: Case, opened: Opened, version: str, asked: str, severity: Severity) -> Finding:
    uses = [use for use in case.runtimes if use.version == version]
    minimum = cuda.min_driver(case.knowledge, version) or "of a newer branch"
    compat = "; cuda-compat of the image could serve, were it opened" if _dormant_compat(case) else ""
    return case.context.finding(
        "GPU002",
        severity,
        f"CUDA {version}",
        tuple(case.context.evidence(use.record, f"CUDA runtime {version}, {use.how}") for use in uses),
        variant=case.framework(("PyTorch", "TensorFlow")),
        runtime=version,
        asked=asked,
        older=_newest_served(case, opened.cuda.newest) if severity == "fail" else f"{parse(version)[0] - 1}.x",
        path=opened.path,
        driver_cuda=str(opened.cuda),
        driver_number=_number(opened.cuda.oldest),
        driver_note=f" (driver {opened.driver})" if opened.driver else "",
        min_driver=minimum,
        compat_note=compat,
    )


def _newest_served(case: Case, driver_cuda: str) -> str:
    """The newest CUDA whose runtimes a driver serves."""
    any_minor = does(case.knowledge, "cuda-minor-compatibility", driver_cuda)
    return f"{parse(driver_cuda)[0]}.x" if any_minor else driver_cuda


def _number(version: str) -> int:
    major, minor = (*parse(version), 0, 0)[:2]
    return major * 1000 + minor * 10


def _dormant_compat(case: Case) -> bool:
    opened = case.opened
    return any(
        compat_serves(library, case.kernel_driver, case.host_cuda)
        for library in case.compat_libraries
        if case.kernel_driver and (opened is None or library.path != opened.path)
    )


def compat(case: Case, answers: Answers) -> None:
    """GPU006: cuda-compat that would be opened does not work over this driver or on these GPUs."""
    opened = case.opened
    if opened is None or not opened.compat:
        reason = (
            "the image's cuda-compat would not be opened" if case.compat_libraries else "the image has no cuda-compat"
        )
        return answers.answer("GPU006", "not-applicable", reason)
    if not case.kernel_driver:
        return answers.answer("GPU006", "unknown", f"{opened.path} would be opened; the host's driver is not known")
    reason, variant = _compat_failure(case, opened)
    if not reason:
        unlisted = "" if opened.note else "which driver branches it works over is not written in it"
        fine = f"{opened.path} lists driver branch {parse(case.kernel_driver)[0]}"
        return answers.conclude("GPU006", (), fine, unlisted)
    detail = f"cuda-compat of driver {opened.driver}, kernel module {case.kernel_driver}"
    finding = case.context.finding(
        "GPU006",
        "fail",
        LIBCUDA,
        (_opened_evidence(case, opened.path, opened.record, detail),),
        variant=variant,
        reason=reason,
        path=opened.path,
        image_driver=opened.driver,
        branches=", ".join(map(str, opened.note.drivers)) if opened.note else f"branches before {opened.driver}",
    )
    return answers.conclude("GPU006", [finding], "")


def _compat_failure(case: Case, opened: Opened) -> tuple[str, str]:
    branch = parse(case.kernel_driver)[0]
    if opened.driver and compare(opened.driver, case.kernel_driver) == 0:
        return "", ""
    if opened.note and branch not in opened.note.drivers:
        listed = ", ".join(map(str, opened.note.drivers))
        return f"{opened.path} works over driver branches {listed}; the host's is {branch}.", ""
    if not opened.note and opened.driver and parse(opened.driver)[:1] <= (branch,):
        return f"{opened.path} of driver {opened.driver} is not newer than the host's {case.kernel_driver}.", ""
    consumer = [kind for kind in case.kinds if kind.brand not in _COMPAT_BRANDS]
    if consumer:
        return f"cuda-compat serves data-center GPUs alone; the host has {consumer[0].label}.", "hardware"
    return "", ""


def _wanted(case: Case) -> dict[str, str]:
    """The image's NVIDIA_REQUIRE_* that count under the cell's runtime."""
    if disabled(case.environment, case.context.family.disable_require):
        return {}
    return requirements(case.environment)


def requirement(case: Case, answers: Answers) -> None:
    """GPU005: NVIDIA_REQUIRE_* is not met."""
    wanted = _wanted(case)
    if not wanted:
        return answers.answer("GPU005", "not-applicable", "the image sets no NVIDIA_REQUIRE_* that counts")
    facts = _facts(case)
    found = evaluate_all(wanted, facts)
    if found is None:
        return answers.answer("GPU005", "ok", f"the host meets {', '.join(wanted)}")
    name, answer = found
    if answer.holds is None:
        why = f"{name}={wanted[name]}: {answer.condition} cannot be decided by what is known of driver and GPU"
        return answers.answer("GPU005", "unknown", why)
    enforced = _enforced(case)
    finding = case.context.finding(
        "GPU005",
        "fail" if enforced else "risk",
        name,
        (Evidence(path="", detail=f"{name}={wanted[name]}"),),
        variant="malformed" if answer.malformed else "",
        variable=name,
        value=wanted[name],
        condition=answer.condition,
        host_facts=_facts_text(facts[0]),
        enforcement="The runtime refuses to start then." if enforced else "The runtime does not test it for certain.",
    )
    return answers.conclude("GPU005", [finding], "")


def _facts(case: Case) -> list[Facts]:
    kinds = case.kinds or (Kind("", ""),)
    own = case.host_cuda
    return [Facts(own.oldest, case.kernel_driver, kind.capability, kind.brand, own.newest) for kind in kinds]


def _facts_text(facts: Facts) -> str:
    parts = [f"{name} {value}" for name, value in zip(("CUDA", "driver", "arch", "brand"), _values(facts), strict=True)]
    return ", ".join(part for part in parts if not part.endswith(" ")) or "the host"


def _values(facts: Facts) -> tuple[str, str, str, str]:
    return facts.cuda, facts.driver, facts.arch, facts.brand


def _enforced(case: Case) -> bool:
    """Whether the runtime tests the variables: always, or in the version that the host is known to have."""
    runtime = case.context.runtime
    if runtime.enforces_require != "legacy-hook":
        return runtime.enforces_require == "always"
    return bool(legacy_hook(case.context))


def missing_functions(case: Case, answers: Answers) -> None:
    """GPU009: a driver function that a file needs is newer than the libcuda that would be opened."""
    users = [
        (record, facts.linkage) for record, facts in case.files if facts.linkage and facts.linkage.driver_functions
    ]
    if not users:
        return answers.answer("GPU009", "not-applicable", "no file names driver functions in its dynamic symbols")
    opened = case.opened
    if opened is None or opened.stub:
        return answers.answer("GPU009", "not-applicable", "no driver library would be opened (GPU007)")
    if not opened.cuda.oldest and opened.functions is None:
        return answers.answer("GPU009", "unknown", f"the CUDA version of {opened.path} is not known")
    missing: dict[str, list[tuple[FileRecord, str]]] = {}
    undecided, dispensable = "", _dispensable(case)
    for record, linkage in users:
        bound = _bound(case, record.path, linkage, dispensable)
        for name in linkage.driver_functions:
            has = _has(case, opened, name)
            if has is None:
                undecided = f"whether {opened.path} of CUDA {opened.cuda} has {name} is not known"
            elif not has:
                missing.setdefault(name, []).append((record, bound))
    findings = [_function_finding(case, opened, name, records) for name, records in missing.items()]
    basis = "the host's libcuda exports" if opened.functions is not None else f"CUDA {opened.cuda} has"
    return answers.conclude("GPU009", findings, f"{basis} every driver function that the image's files name", undecided)


def _dispensable(case: Case) -> set[str]:
    """Libraries that frameworks open by themselves and go on without."""
    found = set[str]()
    for each in case.context.image.components:
        framework = framework_of(case.knowledge, each.name, each.version) if each.opens else None
        if framework and framework.goes_on:
            found.update(name.replace("$ORIGIN", posixpath.dirname(each.opener)) for name in each.opens)
            found.update(case.context.closure.chosen.get((each.opener, name), "") for name in each.opens)
    return found


def _bound(case: Case, path: str, linkage: Linkage, dispensable: set[str]) -> str:
    """When the driver functions of a file are bound."""
    if "now" not in linkage.flags and not linkage.python_module:
        return "bound at the first call"
    begun = case.context.closure.users.get(path, path)
    return "bound when it is opened" if begun in dispensable else _AT_START


def _has(case: Case, opened: Opened, name: str) -> bool | None:
    """Whether a libcuda has a driver function; None where that is open."""
    since = cuda.function_since(case.knowledge, name)
    if opened.functions is not None:
        # Other libraries name functions likewise (cuOpt): what no table of the driver knows has to be of its families.
        own = since is not None or name.startswith(cuda.driver_families(case.knowledge))
        return not own or name in opened.functions
    return since is None or opened.cuda.reaches(since)


def _function_finding(case: Case, opened: Opened, name: str, users: list[tuple[FileRecord, str]]) -> Finding:
    since = cuda.function_since(case.knowledge, name) or ""
    read = opened.functions is not None
    return case.context.finding(
        "GPU009",
        "fail" if any(bound == _AT_START for _, bound in users) else "risk",
        name,
        tuple(case.context.evidence(record, bound) for record, bound in users),
        path=users[0][0].path,
        since=since or "a version that is not recorded",
        provider=f"{opened.path} does not export it" if read else f"{opened.path} is of CUDA {opened.cuda}",
        min_driver=(cuda.first_driver(case.knowledge, since) if since else None) or "of a newer branch",
    )


def unsupported_gpu(case: Case, answers: Answers) -> None:
    """GPU012: the driver does not drive the GPU."""
    if not case.context.host.gpus.known:
        return answers.answer("GPU012", "unknown", "the host's GPUs are not known")
    if not case.kernel_driver:
        if case.context.host.driver.kernel_module.absent:
            return answers.answer("GPU012", "not-applicable", "the host has no NVIDIA kernel module (GPU007)")
        return answers.answer("GPU012", "unknown", "the host's driver is not known")
    judged = [(kind, _unsupported(case, kind)) for kind in case.kinds]
    found = [(kind, problem) for kind, problem in judged if problem]
    severity: Severity = "fail" if len(found) == len(judged) else "risk"
    findings = [_unsupported_finding(case, kind, severity, *problem) for kind, problem in found]
    unknown = next(filter(None, (_open_support(case, kind) for kind in case.kinds)), "")
    return answers.conclude("GPU012", findings, f"driver {case.kernel_driver} drives the host's GPUs", unknown)


def _open_support(case: Case, kind: Kind) -> str:
    """Why it is open whether the driver drives `kind`; "" where it is not."""
    entry = gpus.capabilities(case.knowledge).get(kind.capability)
    if not entry:
        return f"which drivers drive {kind.label} is not known"
    for first in filter(None, (entry.first_driver, kind.first_driver)):
        if compare_drivers(case.kernel_driver, first) is None:
            return f"driver {first} is the first for {kind.label}; of the host's the branch alone is known"
    return ""


def _is_older(driver: str, first: str) -> bool:
    order = compare_drivers(driver, first) if first else None
    return order is not None and order < 0


def _unsupported(case: Case, kind: Kind) -> tuple[str, str, str, bool] | None:
    """(reason, way out, last branch, certain) where the driver does not drive `kind`."""
    entry = gpus.capabilities(case.knowledge).get(kind.capability)
    driver = case.kernel_driver
    if entry and entry.last_branch and parse(driver)[:1] > parse(entry.last_branch):
        reason = f"Branch {entry.last_branch} was the last for compute capability {entry.id} ({entry.generation})."
        return reason, f"Install a driver of branch {entry.last_branch} on the host.", entry.last_branch, True
    if entry and _is_older(driver, entry.first_driver):
        reason = f"Compute capability {entry.id} ({entry.generation}) is driven from driver {entry.first_driver} on."
        return reason, f"Install driver {entry.first_driver} or newer on the host.", "", True
    if _is_older(driver, kind.first_driver):
        reason = f"Driver {kind.first_driver} is the first known to list {kind.name}."
        return reason, f"Install driver {kind.first_driver} or newer on the host.", "", False
    return None


def _unsupported_finding(
    case: Case, kind: Kind, severity: Severity, reason: str, way_out: str, last: str, certain: bool
) -> Finding:
    return case.context.finding(
        "GPU012",
        severity if certain else "risk",
        kind.label,
        case.evidence_of_use("uses the GPU"),
        variant="dropped" if last else "",
        driver=case.kernel_driver,
        gpu=kind.label,
        reason=reason,
        way_out=way_out,
        last=last,
    )
