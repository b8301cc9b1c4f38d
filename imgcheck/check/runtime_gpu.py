"""RUN001 and others: what a runtime asks for before it brings the GPU's driver into a container."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from imgcheck import versions
from imgcheck.check.context import Answers, Context, config_evidence, unlooked, unlooked_of
from imgcheck.check.gpu_require import is_legacy
from imgcheck.check.gpu_use import lacks_nvidia
from imgcheck.documents.report import Evidence, Finding, Severity
from imgcheck.globs import fits_any
from imgcheck.knowledge.cuda import oldest_cuda

if TYPE_CHECKING:
    from imgcheck.loader.tree import Tree

_DRIVERLESS = {"void", "none", ""}
_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
_COMPUTE = {"all", "compute"}


def ask(context: Context, answers: Answers) -> None:
    """Answer each of these rules."""
    for rule, (judge, asks, nothing) in _RULES.items():
        reason = _not_applicable(context, nothing.format(runtime=context.runtime.title) if not asks(context) else "")
        if reason:
            answers.answer(rule, "not-applicable", reason)
        else:
            judge(context, answers)
    _cuda_label(context, answers)


def _not_applicable(context: Context, nothing: str) -> str:
    """Why a rule on what the runtime asks for has nothing to judge: `nothing` where it asks for none; else ""."""
    if nothing:
        return nothing
    if not context.nvidia_files:
        return "the image has no code for NVIDIA GPUs"
    if not context.may_use_gpu(context.nvidia_files):
        return "nothing that the command reaches uses an NVIDIA GPU"
    if lacks_nvidia(context.host) and not context.require_gpu:
        return "the host has no NVIDIA GPU"
    return ""


def _driver_floor(context: Context, answers: Answers) -> None:
    """RUN001."""
    runtime, driver = context.runtime, context.host.driver.kernel_module
    if driver.absent:
        answers.answer("RUN001", "not-applicable", "the host has no NVIDIA driver")
        return
    if not driver.known or driver.value is None:
        answers.answer("RUN001", "unknown", f"it asks for driver {runtime.minimum_driver}; the host's is not known")
        return
    order = versions.compare_drivers(driver.value, runtime.minimum_driver)
    if order is None:
        reason = f"it asks for driver {runtime.minimum_driver}; of the host's the branch alone is known, {driver.value}"
        answers.answer("RUN001", "unknown", reason)
        return
    findings = []
    if order < 0:
        findings.append(
            context.finding(
                "RUN001",
                "fail",
                subject=runtime.id,
                evidence=config_evidence(f"driver {driver.value} ({driver.source})"),
                runtime=runtime.title,
                driver=driver.value,
                minimum=runtime.minimum_driver,
            )
        )
    answers.conclude("RUN001", findings, f"driver {driver.value} is not older than {runtime.minimum_driver}")


def legacy_hook(context: Context) -> bool | None:
    """Whether a runtime that has such a mode hooks the driver in by the image's environment; None where its version is
    not known.
    """
    runtime = context.runtime
    installed = context.host.version_of(runtime.id, runtime.programs)
    never = [change.since for change in runtime.changes if change.enforces_require == "never"]
    return None if not installed else not any(versions.at_least(installed, since) for since in never)


def _environment(context: Context, answers: Answers) -> None:
    """RUN002."""
    runtime = context.runtime
    settings = context.image.config.variables
    legacy_image = runtime.serves_legacy_images and is_legacy(settings)
    findings = [
        _variable(context, variable, consequence, _unmet(context, variable))
        for variable, consequence in runtime.requires_environment.items()
        if not _serves(variable, settings.get(variable)) and not (legacy_image and variable not in settings)
    ]
    hook = legacy_hook(context) if runtime.enforces_require == "legacy-hook" else True
    findings += [
        _variable(context, variable, consequence, "fail" if hook else "risk")
        for variable, consequence in runtime.excluding_environment.items()
        if hook is not False and settings.get(variable) and not _serves(variable, settings[variable])
    ]
    answers.conclude("RUN002", findings, "the image's environment lets the driver in")


def _unmet(context: Context, variable: str) -> Severity:
    """How much it matters that the image does not let the driver in: how the runtime is started may do it."""
    option = context.runtime.environment_option
    if not option:
        return "fail"
    sets_it = variable not in context.image.config.variables and option in context.runtime.started
    return "info" if sets_it else "risk"


def _serves(variable: str, value: str | None) -> bool:
    if value is None:
        return False
    words = {word.strip().lower() for word in value.split(",")}
    if variable == _CAPABILITIES:
        return bool(words & _COMPUTE)
    return not words <= _DRIVERLESS


def _variable(context: Context, variable: str, consequence: str, severity: Severity) -> Finding:
    runtime, value = context.runtime, context.image.config.variables.get(variable)
    wanted = "compute,utility" if variable == _CAPABILITIES else "all"
    option = f"-e {variable}={wanted}" if variable in runtime.excluding_environment else runtime.environment_option
    passed = f", or start it with {option}" if option else ""
    return context.finding(
        "RUN002",
        severity,
        subject=variable,
        evidence=config_evidence("not set in the image's configuration" if value is None else f"{variable}={value}"),
        runtime=runtime.title,
        variable=variable,
        stated=f"Without {variable}" if value is None else f"With {variable}={value}",
        consequence=consequence,
        option=f"Add ENV {variable}={wanted} to the image{passed}.",
    )


def _labels(context: Context, answers: Answers) -> None:
    """RUN003."""
    runtime = context.runtime
    findings = [
        context.finding(
            "RUN003",
            "fail",
            subject=label,
            evidence=config_evidence("not among the image's labels"),
            runtime=runtime.title,
            label=label,
            consequence=consequence,
            driver=context.host.driver.kernel_module.value or "VERSION",
        )
        for label, consequence in runtime.requires_labels.items()
        if label not in context.image.config.labels
    ]
    answers.conclude("RUN003", findings, "the image carries the label")


def _destination(context: Context, answers: Answers) -> None:
    """RUN007."""
    runtime = context.runtime
    findings = []
    unseen = () if _chosen_directory(context) else unlooked_of(context, runtime.requires_one_directory)
    if not _chosen_directory(context) and not unseen:
        findings.append(
            context.finding(
                "RUN007",
                "fail",
                subject=runtime.id,
                evidence=tuple(
                    Evidence(path=path, detail="not in the image") for path in runtime.requires_one_directory
                ),
                runtime=runtime.title,
                directories=" or ".join(runtime.requires_one_directory),
                first=runtime.requires_one_directory[0],
            )
        )
    answers.conclude("RUN007", findings, "the image has a directory for the driver's libraries", unlooked(unseen))


def _architecture(context: Context, answers: Answers) -> None:
    """RUN008."""
    runtime, host = context.runtime, context.host.cpu.architecture
    if not host.known:
        answers.answer("RUN008", "unknown", "the host's architecture is not known")
        return
    findings = []
    if host.value not in runtime.injects_on:
        findings.append(
            context.finding(
                "RUN008",
                "fail",
                subject=runtime.id,
                evidence=config_evidence(f"the host is {host.value} ({host.source})"),
                runtime=runtime.title,
                architecture=host.value,
                architectures=" and ".join(runtime.injects_on),
            )
        )
    answers.conclude("RUN008", findings, f"the runtime injects the driver on {host.value}")


def _cuda_label(context: Context, answers: Answers) -> None:
    """RUN011."""
    label, cuda = context.runtime.cuda_label, context.host.driver.cuda
    wanted = ".".join(map(str, versions.parse(context.image.config.labels.get(label, ""))[:2]))
    if not label or not wanted or cuda.absent:
        answers.answer("RUN011", "not-applicable", "the runtime compares no CUDA version of the image's labels")
        return
    least = cuda.value or oldest_cuda(context.knowledge, context.host.driver.userland.value or "") or ""
    enough = versions.at_least(least, wanted)
    if not cuda.known and not enough:
        answers.answer("RUN011", "unknown", f"the image asks for CUDA {wanted}; the driver's CUDA version is not known")
        return
    findings = []
    if not enough:
        findings.append(
            context.finding(
                "RUN011",
                "fail",
                subject=wanted,
                evidence=config_evidence(f"label {label}={context.image.config.labels[label]}"),
                runtime=context.runtime.title,
                label=label,
                image_cuda=wanted,
                driver_cuda=least,
            )
        )
    answers.conclude("RUN011", findings, f"the driver's CUDA {least} is not older than the image's {wanted}")


def _files_in_the_way(context: Context, answers: Answers) -> None:
    """RUN012."""
    runtime = context.runtime
    from imgcheck.loader.tree import Tree  # few runtimes place a driver into a directory of the image

    tree, present = Tree(context.image), _present(context)
    found = sorted(path for path in present if path in runtime.refuses_files or _stands_in_the_way(context, tree, path))
    findings = []
    if found:
        dangling = all(tree.canonical(path) not in present for path in found)
        findings.append(
            context.finding(
                "RUN012",
                "risk",
                subject=runtime.id,
                evidence=tuple(Evidence(path=path, detail="in the image") for path in found),
                variant="dangling" if dangling else "",
                runtime=runtime.title,
                files=", ".join(found),
                first=found[0],
            )
        )
    unseen = unlooked_of(context, runtime.refuses_files)
    answers.conclude("RUN012", findings, "no file of the image stands where the driver's go", unlooked(unseen))


def _chosen_directory(context: Context) -> str:
    """The first of the directories that the image has: there the driver's files go."""
    present = set(context.image.tree.directories)
    return next((path for path in context.runtime.requires_one_directory if path in present), "")


def _present(context: Context) -> set[str]:
    """What is recorded of the tree: files with code or named as libraries, links, and files that runtimes ask for."""
    image, tree = context.image, context.image.tree
    return {*(record.path for record in image.files), *tree.symlinks, *tree.files, *tree.unloadable}


def _stands_in_the_way(context: Context, tree: "Tree", path: str) -> bool:
    above, _, name = path.rpartition("/")
    return _brought(context, name) and tree.canonical(above or "/") == tree.canonical(_chosen_directory(context))


def _brought(context: Context, name: str) -> bool:
    """Whether the host's driver has a file `name`; where what is known of the host leaves it open, it is taken to."""
    if not fits_any(name, context.runtime.libraries):
        return False
    host = context.host
    driver = host.driver.userland.value or host.driver.kernel_module.value
    version = name.partition(".so.")[2]
    if "." in version and driver:
        return version == driver
    soname = f"{name.partition('.so')[0]}.so"
    libraries = host.libraries.value
    return not libraries or any(library.soname.startswith(soname) for library in libraries)


def _asked_variables(context: Context) -> tuple[str, ...]:
    return (*context.runtime.requires_environment, *context.runtime.excluding_environment)


class _Rule(NamedTuple):
    """A rule on what runtimes ask for before they bring the driver of NVIDIA."""

    judge: Callable[[Context, Answers], None]
    asks: Callable[[Context], object]
    """What the runtime asks for; nothing: the rule does not apply."""
    nothing: str
    """Why, then."""


_RULES: Mapping[str, _Rule] = {
    "RUN001": _Rule(_driver_floor, lambda each: each.runtime.minimum_driver, "{runtime} sets no lowest driver version"),
    "RUN002": _Rule(_environment, _asked_variables, "{runtime} asks for no variable of the image"),
    "RUN003": _Rule(_labels, lambda each: each.runtime.requires_labels, "{runtime} asks for no label of the image"),
    "RUN007": _Rule(
        _destination,
        lambda each: each.runtime.requires_one_directory,
        "{runtime} places no driver into a directory of the image",
    ),
    "RUN008": _Rule(
        _architecture,
        lambda each: each.runtime.injects_on,
        "{runtime} injects the driver on every architecture, or none",
    ),
    "RUN012": _Rule(_files_in_the_way, _chosen_directory, "{runtime} places no driver into a directory of this image"),
}
