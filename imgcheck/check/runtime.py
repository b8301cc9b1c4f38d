"""RUN001 to RUN015: what a runtime asks of the image and of the host before anything of the image runs."""

import posixpath
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from imgcheck import versions
from imgcheck.check.context import Answers, Context
from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.report import Evidence, Finding, Severity
from imgcheck.loader.tree import Tree

_DRIVERLESS = {"void", "none", ""}
_COMPUTE = {"all", "compute"}
_MENDED_ENVIRONMENT = "1.5.0"
"""First Apptainer whose environment script survives a backtick."""
_WORKDIR_OPTIONS = {
    "apptainer": "--pwd {directory}",
    "charliecloud": "--cd={directory}",
    "shifter": "--entrypoint --workdir={directory}",
}
_SINGULARITY = "/.singularity.d"
_HOMES = {"": "/root", "root": "/root", "0": "/root"}


def check(context: Context) -> Answers:
    answers = Answers()
    _driver_floor(context, answers)
    _environment(context, answers)
    _labels(context, answers)
    _required_paths(context, answers)
    _working_directory(context, answers)
    _user(context, answers)
    _destination(context, answers)
    _architecture(context, answers)
    _relative_command(context, answers)
    _backtick(context, answers)
    _cuda_label(context, answers)
    _files_in_the_way(context, answers)
    _own_scripts(context, answers)
    _mountpoints(context, answers)
    _preloaded(context, answers)
    return answers


def wants_gpu(context: Context) -> bool:
    """The image has code for GPUs of NVIDIA, and the host may have one to run it."""
    if context.host.gpus.absent and not context.require_gpu:
        return False
    for facts in context.image.objects.values():
        if facts.gpu and (facts.gpu.modules or facts.gpu.cudart):
            return True
        if facts.linkage and "libcuda.so.1" in facts.linkage.needed:
            return True
    return False


def _settings(lines: Iterable[str]) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in lines)


def _config(detail: str) -> tuple[Evidence, ...]:
    return (Evidence(path="", detail=detail),)


def _driver_floor(context: Context, answers: Answers) -> None:
    """RUN001."""
    runtime, driver = context.runtime, context.host.driver.kernel_module
    if not runtime.minimum_driver or not wants_gpu(context) or driver.absent:
        answers.answer("RUN001", "not-applicable", f"{runtime.title} sets no lowest driver version for this")
        return
    if not driver.known or driver.value is None:
        answers.answer("RUN001", "unknown", f"it asks for driver {runtime.minimum_driver}; the host's is not known")
        return
    findings = []
    if not versions.at_least(driver.value, runtime.minimum_driver):
        findings.append(
            context.finding(
                "RUN001",
                "fail",
                subject=runtime.id,
                evidence=_config(f"driver {driver.value} ({driver.source})"),
                runtime=runtime.title,
                driver=driver.value,
                minimum=runtime.minimum_driver,
            )
        )
    answers.conclude("RUN001", findings, f"driver {driver.value} is not older than {runtime.minimum_driver}")


def _environment(context: Context, answers: Answers) -> None:
    """RUN002."""
    runtime = context.runtime
    if not runtime.requires_environment or not wants_gpu(context):
        answers.answer("RUN002", "not-applicable", "the driver does not depend on the image's environment")
        return
    settings = _settings(context.image.config.environment)
    findings = [
        _variable(context, variable, consequence, settings.get(variable))
        for variable, consequence in runtime.requires_environment.items()
        if not _serves(variable, settings.get(variable))
    ]
    answers.conclude("RUN002", findings, "the image sets what the runtime asks for")


def _serves(variable: str, value: str | None) -> bool:
    if value is None:
        return False
    words = {word.strip().lower() for word in value.split(",")}
    if variable == "NVIDIA_DRIVER_CAPABILITIES":
        return bool(words & _COMPUTE)
    return not words <= _DRIVERLESS


def _variable(context: Context, variable: str, consequence: str, value: str | None) -> Finding:
    runtime = context.runtime
    severity: Severity = "risk" if runtime.environment_option else "fail"
    wanted = "compute,utility" if variable == "NVIDIA_DRIVER_CAPABILITIES" else "all"
    passed = f", or start it with {runtime.environment_option}" if runtime.environment_option else ""
    return context.finding(
        "RUN002",
        severity,
        subject=variable,
        evidence=_config("not set in the image's configuration" if value is None else f"{variable}={value}"),
        runtime=runtime.title,
        variable=variable,
        consequence=consequence,
        option=f"Add ENV {variable}={wanted} to the image{passed}.",
    )


def _labels(context: Context, answers: Answers) -> None:
    """RUN003."""
    runtime = context.runtime
    if not runtime.requires_labels or not wants_gpu(context):
        answers.answer("RUN003", "not-applicable", "the driver does not depend on the image's labels")
        return
    findings = [
        context.finding(
            "RUN003",
            "fail",
            subject=label,
            evidence=_config("not among the image's labels"),
            runtime=runtime.title,
            label=label,
            consequence=consequence,
            driver=context.host.driver.kernel_module.value or "VERSION",
        )
        for label, consequence in runtime.requires_labels.items()
        if label not in context.image.config.labels
    ]
    answers.conclude("RUN003", findings, "the image carries the label")


def _required_paths(context: Context, answers: Answers) -> None:
    """RUN004."""
    runtime, tree = context.runtime, context.image.tree
    if not runtime.requires_files and not runtime.requires_directories:
        answers.answer("RUN004", "not-applicable", "the runtime asks for no file or directory of the image")
        return
    present = {*tree.files, *tree.directories}
    missing = [path for path in (*runtime.requires_files, *runtime.requires_directories) if path not in present]
    findings = [
        context.finding(
            "RUN004",
            "fail",
            subject=path,
            evidence=(Evidence(path=path, detail="not in the image"),),
            variant="udocker" if runtime.family == "udocker" else "",
            runtime=runtime.title,
            missing=path,
        )
        for path in missing
    ]
    answers.conclude("RUN004", findings, "the image has what the runtime binds to")


def _working_directory(context: Context, answers: Answers) -> None:
    """RUN005."""
    if not context.runtime.requires_working_directory:
        answers.answer("RUN005", "not-applicable", "the runtime does without the working directory")
        return
    directory = _directory(context)
    if not directory:
        answers.answer("RUN005", "ok", "the image sets no WORKDIR, and the user's home is the caller's affair")
        return
    findings = []
    if directory != "/" and directory not in context.image.tree.directories:
        findings.append(
            context.finding(
                "RUN005",
                "fail",
                subject=directory,
                evidence=(Evidence(path=directory, detail="not in the image"),),
                runtime=context.runtime.title,
                directory=directory,
            )
        )
    answers.conclude("RUN005", findings, f"{directory} exists")


def _directory(context: Context) -> str:
    """WORKDIR, or root's home where none is set and root is the user; "" for another user's home."""
    config = context.image.config
    if config.working_directory:
        return posixpath.normpath("/" + config.working_directory.lstrip("/"))
    return _HOMES.get(config.user.partition(":")[0], "")


def _user(context: Context, answers: Answers) -> None:
    """RUN006."""
    syntax, user = context.runtime.user_syntax, context.image.config.user
    if not syntax:
        answers.answer("RUN006", "not-applicable", "the runtime understands every form of USER")
        return
    findings = []
    if not re.fullmatch(syntax, user, re.ASCII):
        findings.append(
            context.finding(
                "RUN006",
                "fail",
                subject=user,
                evidence=_config(f"USER {user}"),
                runtime=context.runtime.title,
                user=user,
            )
        )
    answers.conclude("RUN006", findings, f"USER {user} is understood" if user else "the image sets no USER")


def _destination(context: Context, answers: Answers) -> None:
    """RUN007."""
    runtime = context.runtime
    if not runtime.requires_one_directory or not wants_gpu(context):
        answers.answer("RUN007", "not-applicable", "the runtime places no driver into a directory of the image")
        return
    findings = []
    if not set(runtime.requires_one_directory) & set(context.image.tree.directories):
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
    answers.conclude("RUN007", findings, "the image has a directory for the driver's libraries")


def _architecture(context: Context, answers: Answers) -> None:
    """RUN008."""
    runtime, host = context.runtime, context.host.cpu.architecture
    if not runtime.injects_on or not wants_gpu(context):
        answers.answer("RUN008", "not-applicable", "the runtime injects the driver on every architecture, or none")
        return
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
                evidence=_config(f"the host is {host.value} ({host.source})"),
                runtime=runtime.title,
                architecture=host.value,
                architectures=" and ".join(runtime.injects_on),
            )
        )
    answers.conclude("RUN008", findings, f"the runtime injects the driver on {host.value}")


def _relative_command(context: Context, answers: Answers) -> None:
    """RUN009."""
    config, option = context.image.config, _WORKDIR_OPTIONS.get(context.runtime.family)
    if option is None:
        answers.answer("RUN009", "not-applicable", "the runtime enters the image's WORKDIR")
        return
    command = next(iter((*config.entrypoint, *config.command)), "")
    relative = "/" in command and not command.startswith("/")
    findings = []
    if relative and config.working_directory not in ("", "/"):
        findings.append(
            context.finding(
                "RUN009",
                "fail",
                subject=command,
                evidence=_config(f"command {command}, WORKDIR {config.working_directory}"),
                runtime=context.runtime.title,
                command=command,
                directory=config.working_directory,
                option=option.replace("{directory}", config.working_directory),
            )
        )
    answers.conclude("RUN009", findings, "the image's command does not depend on its WORKDIR")


def _backtick(context: Context, answers: Answers) -> None:
    """RUN010."""
    if context.runtime.id not in ("apptainer", "apptainer-nv"):
        answers.answer("RUN010", "not-applicable", "only Apptainer turns ENV into a script that a backtick breaks")
        return
    settings = _settings(context.image.config.environment)
    variables = sorted(name for name, value in settings.items() if "`" in value)
    version = _installed_version(context)
    if not variables or (version and versions.at_least(version, _MENDED_ENVIRONMENT)):
        answers.answer(
            "RUN010", "ok", "no variable of the image holds a backtick" if not variables else f"Apptainer {version}"
        )
        return
    severity: Severity = "fail" if version else "risk"
    findings = [
        context.finding("RUN010", severity, subject=name, evidence=_config(f"{name}={settings[name]}"), variable=name)
        for name in variables
    ]
    answers.conclude("RUN010", findings, "")


def _cuda_label(context: Context, answers: Answers) -> None:
    """RUN011."""
    label, cuda = context.runtime.cuda_label, context.host.driver.cuda
    wanted = ".".join(map(str, versions.parse(context.image.config.labels.get(label, ""))[:2]))
    if not label or not wanted or cuda.absent:
        answers.answer("RUN011", "not-applicable", "the runtime compares no CUDA version of the image's labels")
        return
    if not cuda.known or cuda.value is None:
        answers.answer("RUN011", "unknown", f"the image asks for CUDA {wanted}; the driver's CUDA version is not known")
        return
    findings = []
    if not versions.at_least(cuda.value, wanted):
        findings.append(
            context.finding(
                "RUN011",
                "fail",
                subject=wanted,
                evidence=_config(f"label {label}={context.image.config.labels[label]}"),
                runtime=context.runtime.title,
                label=label,
                image_cuda=wanted,
                driver_cuda=cuda.value,
            )
        )
    answers.conclude("RUN011", findings, f"the driver's CUDA {cuda.value} is not older than the image's {wanted}")


def _files_in_the_way(context: Context, answers: Answers) -> None:
    """RUN012."""
    runtime = context.runtime
    directory = _chosen_directory(context)
    if not directory or not wants_gpu(context):
        answers.answer("RUN012", "not-applicable", "the runtime places no driver into a directory of the image")
        return
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
    answers.conclude("RUN012", findings, "no file of the image stands where the driver's go")


def _chosen_directory(context: Context) -> str:
    """The first of the directories that the image has: there the driver's files go."""
    present = set(context.image.tree.directories)
    return next((path for path in context.runtime.requires_one_directory if path in present), "")


def _present(context: Context) -> set[str]:
    """What is recorded of the tree: files with code, links that lead to them, and files that runtimes ask for."""
    image = context.image
    return {*(record.path for record in image.files), *image.tree.symlinks, *image.tree.files}


def _stands_in_the_way(context: Context, tree: Tree, path: str) -> bool:
    above, _, name = path.rpartition("/")
    return _brought(context, name) and tree.canonical(above or "/") == tree.canonical(_chosen_directory(context))


def _brought(context: Context, name: str) -> bool:
    """Whether the host's driver has a file `name`; where what is known of the host leaves it open, it is taken to."""
    if not any(fnmatchcase(name, pattern) for pattern in context.runtime.libraries):
        return False
    host = context.host
    driver = host.driver.userland.value or host.driver.kernel_module.value
    version = name.partition(".so.")[2]
    if "." in version and driver:
        return version == driver
    soname = f"{name.partition('.so')[0]}.so"
    libraries = host.libraries.value
    return not libraries or any(library.soname.startswith(soname) for library in libraries)


def _own_scripts(context: Context, answers: Answers) -> None:
    """RUN013."""
    if context.runtime.family != "apptainer":
        answers.answer("RUN013", "not-applicable", f"the runtime keeps nothing in {_SINGULARITY}")
        return
    tree = context.image.tree
    findings = []
    if _SINGULARITY in {*tree.directories, *tree.symlinks}:
        target = tree.symlinks.get(_SINGULARITY)
        evidence = (Evidence(path=_SINGULARITY, detail=f"a link to {target}" if target else "in the image"),)
        findings.append(
            context.finding("RUN013", "info", subject=_SINGULARITY, evidence=evidence, runtime=context.runtime.title)
        )
    answers.conclude("RUN013", findings, f"the image does not ship {_SINGULARITY}")


def _mountpoints(context: Context, answers: Answers) -> None:
    """RUN014."""
    runtime = context.runtime
    if not runtime.makes_directories:
        answers.answer("RUN014", "not-applicable", "the runtime makes no mountpoint in a layer above the image")
        return
    present = {*context.image.tree.directories, *context.image.tree.symlinks}
    missing = [path for path in runtime.makes_directories if path not in present]
    findings = []
    if missing:
        evidence = tuple(Evidence(path=path, detail="not in the image") for path in missing)
        findings.append(
            context.finding(
                "RUN014", "info", subject=runtime.id, evidence=evidence, runtime=runtime.title, first=missing[0]
            )
        )
    answers.conclude("RUN014", findings, "the image has what the runtime mounts over")


def _preloaded(context: Context, answers: Answers) -> None:
    """RUN015."""
    if context.runtime.family != "udocker":
        answers.answer("RUN015", "not-applicable", "the runtime puts no library between the program and the C library")
        return
    image = context.image
    objects = {record.path: image.objects[record.object] for record in image.files}
    static = [path for path in context.roots.entries if path in objects and _is_static(objects[path])]
    unnamed = not any(component.path.endswith("/os-release") for component in image.components)
    evidence = [Evidence(path=path, detail="statically linked") for path in static]
    if unnamed:
        evidence.append(Evidence(path="/etc/os-release", detail="names no distribution"))
    findings = []
    if evidence:
        variant = "static" if static else ""
        findings.append(context.finding("RUN015", "info", subject="udocker", evidence=tuple(evidence), variant=variant))
    answers.conclude("RUN015", findings, "the image names its distribution, and its command is linked dynamically")


def _is_static(facts: CodeFacts) -> bool:
    linkage = facts.linkage
    return linkage is not None and linkage.type == "executable" and not linkage.interpreter


def _installed_version(context: Context) -> str:
    installed = context.host.runtimes.value or ()
    return next((entry.version for entry in installed if entry.id == context.runtime.id), "")
