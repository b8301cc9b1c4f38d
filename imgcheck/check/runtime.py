"""RUN001 to RUN016: what a runtime asks of the image and of the host before anything of the image runs."""

import posixpath
import re
from collections.abc import Container, Iterable, Iterator

from msgspec import structs

from imgcheck import versions
from imgcheck.check import runtime_gpu
from imgcheck.check.context import Answers, Context, config_evidence, unlooked, unlooked_of
from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.report import Evidence, Severity
from imgcheck.loader.closure import closed_at
from imgcheck.loader.environment import path_of

_READ = (".py", ".sh", ".pl", ".R", ".r", ".rb", ".js", ".mjs", ".jl", ".lua", ".php", ".tcl", ".jar")
"""How files are called that an interpreter reads."""
_HOMES = {"": "/root", "root": "/root", "0": "/root"}


def check(context: Context) -> Answers:
    answers = Answers()
    runtime_gpu.ask(context, answers)
    _required_paths(context, answers)
    _working_directory(context, answers)
    _user(context, answers)
    _relative_command(context, answers)
    _backtick(context, answers)
    _own_scripts(context, answers)
    _mountpoints(context, answers)
    _preloaded(context, answers)
    _closed(context, answers)
    answers.checks.sort(key=lambda answer: answer.rule)
    return answers


def _required_paths(context: Context, answers: Answers) -> None:
    """RUN004."""
    runtime, tree = context.runtime, context.image.tree
    if not runtime.requires_files and not runtime.requires_directories:
        answers.answer("RUN004", "not-applicable", "the runtime asks for no file or directory of the image")
        return
    present = {*tree.files, *tree.directories}
    missing, unseen = _missing(context, (*runtime.requires_files, *runtime.requires_directories), present)
    findings = [
        context.finding(
            "RUN004",
            "fail",
            subject=path,
            evidence=(Evidence(path=path, detail="not in the image"),),
            variant=context.variant("RUN004", runtime.family),
            runtime=runtime.title,
            missing=path,
        )
        for path in missing
    ]
    answers.conclude("RUN004", findings, "the image has what the runtime binds to", unlooked(unseen))


def _missing(context: Context, paths: Iterable[str], present: Container[str]) -> tuple[list[str], list[str]]:
    """Those of `paths` that the image has not, and those of which its profile says nothing."""
    absent = [path for path in paths if path not in present]
    unseen = unlooked_of(context, absent)
    return [path for path in absent if path not in unseen], unseen


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
                evidence=config_evidence(f"USER {user}"),
                runtime=context.runtime.title,
                user=user,
            )
        )
    answers.conclude("RUN006", findings, f"USER {user} is understood" if user else "the image sets no USER")


def _relative_command(context: Context, answers: Answers) -> None:
    """RUN009."""
    config, option = context.image.config, context.family.working_directory_option
    if not option:
        answers.answer("RUN009", "not-applicable", "the runtime enters the image's WORKDIR")
        return
    findings = [
        context.finding(
            "RUN009",
            severity,
            subject=word,
            evidence=config_evidence(f"command {word}, WORKDIR {config.working_directory}"),
            variant="" if is_file else "module",
            runtime=context.runtime.title,
            command=word,
            module=word.partition(":")[0],
            directory=config.working_directory,
            option=option.replace("{directory}", config.working_directory),
            instead="name it by its absolute path" if is_file else f"set ENV PYTHONPATH={config.working_directory}",
        )
        for word, severity in _relative_words(context).items()
        for is_file in (_is_file(context, word),)
    ]
    answers.conclude("RUN009", findings, "the image's command does not depend on its WORKDIR")


def _is_file(context: Context, word: str) -> bool:
    """Whether a word of the command names a file, and no module of Python."""
    return "/" in word or word.endswith(_READ) or _is_there(context, _in_workdir(context, word))


def _relative_words(context: Context) -> dict[str, Severity]:
    """Words of the image that name a program, a module or a file from its WORKDIR; what runs has to be there."""
    if context.image.config.working_directory in ("", "/"):
        return {}
    command, typed = _first_word(context), _typed(context)
    runs = [command] if "/" in command and not command.startswith("/") else []
    runs += [word for word in context.roots.from_workdir if not any(word in each for each in typed)]
    # What a script or launcher does before, `roots` know: it may go to WORKDIR.
    starting = {posixpath.basename(way) for way in context.roots.ways.values()}
    direct = posixpath.basename(command) not in starting
    files = [word for word in _named_files(context) if direct and not word.startswith("/")]
    read: dict[str, Severity] = {word: "fail" if word.endswith(_READ) else "risk" for word in files}
    return read | dict.fromkeys(runs, "fail")


def _named_files(context: Context) -> dict[str, str]:
    """Words of the command, but the first, that name files of the image by their path -> that, links not resolved."""
    words = _words(context)
    # What users type is relative to where they are.
    own = words[: -len(typed)] if (typed := _typed(context)) else words
    named = (word for number, word in enumerate(words) if number and (number < len(own) or word.startswith("/")))
    paths = {word: _in_workdir(context, word) for word in named}
    return {word: path for word, path in paths.items() if _is_there(context, path)}


def _in_workdir(context: Context, word: str) -> str:
    """The path that a word of the command means."""
    return posixpath.normpath(posixpath.join("/", context.image.config.working_directory, word))


def _is_there(context: Context, path: str) -> bool:
    tree = context.image.tree
    return path in tree.files or any(script.path == path for script in tree.scripts) or path in context.records


def _words(context: Context) -> tuple[str, ...]:
    return context.roots.command or (*context.image.config.entrypoint, *context.image.config.command)


def _typed(context: Context) -> tuple[str, ...]:
    """The words that a user gives in place of CMD."""
    typed = _words(context)[len(context.image.config.entrypoint) :]
    return typed if typed != context.image.config.command else ()


def _first_word(context: Context) -> str:
    """What is started: of a user's command under a runtime that may leave out ENTRYPOINT its own first word."""
    typed = _typed(context)
    words = typed if typed and context.runtime.skips_entrypoint else _words(context)
    return words[0] if words else ""


def _backtick(context: Context, answers: Answers) -> None:
    """RUN010."""
    mended = context.family.takes_backticks_since.get("".join(context.runtime.programs[-1:]))
    if not mended:
        answers.answer("RUN010", "not-applicable", "the runtime makes no script of ENV that a backtick breaks")
        return
    settings = context.image.config.variables
    variables = sorted(name for name, value in settings.items() if "`" in value)
    version = context.host.version_of(context.runtime.id, context.runtime.programs)
    if not variables:
        answers.answer("RUN010", "ok", "no variable of the image holds a backtick")
        return
    if version and versions.at_least(version, mended):
        answers.answer("RUN010", "ok", f"a backtick does not break the script of {context.runtime.title} {version}")
        return
    severity: Severity = "fail" if version else "risk"
    findings = [
        context.finding(
            "RUN010", severity, subject=name, evidence=config_evidence(f"{name}={settings[name]}"), variable=name
        )
        for name in variables
    ]
    answers.conclude("RUN010", findings, "")


def _own_scripts(context: Context, answers: Answers) -> None:
    """RUN013."""
    owned = context.family.owns_directory
    if not owned:
        return answers.answer("RUN013", "not-applicable", "the runtime takes no directory of the image for its own")
    if not context.image.config_digest:
        return answers.answer("RUN013", "not-applicable", f"a tree or a SIF, of which {owned} is a part, is no image")
    tree = context.image.tree
    findings = []
    if owned in {*tree.directories, *tree.symlinks}:
        target = tree.symlinks.get(owned)
        evidence = (Evidence(path=owned, detail=f"a link to {target}" if target else "in the image"),)
        findings.append(
            context.finding("RUN013", "info", subject=owned, evidence=evidence, runtime=context.runtime.title)
        )
    return answers.conclude("RUN013", findings, f"the image does not ship {owned}")


def _mountpoints(context: Context, answers: Answers) -> None:
    """RUN014."""
    runtime = context.runtime
    if not runtime.makes_directories:
        answers.answer("RUN014", "not-applicable", "the runtime makes no mountpoint in a layer above the image")
        return
    present = {*context.image.tree.directories, *context.image.tree.symlinks}
    missing, unseen = _missing(context, runtime.makes_directories, present)
    findings = []
    if missing:
        evidence = tuple(Evidence(path=path, detail="not in the image") for path in missing)
        findings.append(
            context.finding(
                "RUN014", "info", subject=runtime.id, evidence=evidence, runtime=runtime.title, first=missing[0]
            )
        )
    fine = (
        "the runtime makes what it mounts over and the image lacks" if missing else "the image has what is mounted over"
    )
    # What would be information at most leaves no question open either.
    answers.conclude("RUN014", findings, unlooked(unseen) or fine)


def _preloaded(context: Context, answers: Answers) -> None:
    """RUN015."""
    if not context.family.preloads:
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
        findings.append(
            context.finding("RUN015", "info", subject=context.runtime.family, evidence=tuple(evidence), variant=variant)
        )
    answers.conclude("RUN015", findings, "the image names its distribution, and its command is linked dynamically")


def _is_static(facts: CodeFacts) -> bool:
    linkage = facts.linkage
    return linkage is not None and linkage.type == "executable" and not linkage.interpreter


def _closed(context: Context, answers: Answers) -> None:
    """RUN016."""
    if not context.family.runs_as_caller:
        return answers.answer(
            "RUN016", "not-applicable", "the runtime runs the image as its USER, or who owns its files"
        )
    if not context.image.config_digest and not context.image.family:
        return answers.answer("RUN016", "not-applicable", "an unpacked tree belongs to whom has unpacked it")
    denied: dict[str, dict[str, Evidence]] = {}
    for closed, evidence in _denied(context):
        denied.setdefault(closed, {}).setdefault(evidence.path, evidence)
    findings = [
        context.finding(
            "RUN016",
            "risk" if context.roots.everything else "fail",
            subject=closed,
            evidence=tuple(found.values()),
            variant=_how_denied(context, closed, next(iter(found.values()))),
            runtime=context.runtime.title,
            closed=closed,
            path=next(iter(found)),
            word=_first_word(context),
            how=_how_closed(closed, next(iter(found))),
        )
        for closed, found in denied.items()
    ]
    return answers.conclude("RUN016", findings, "what the command starts and loads is open to every user")


def _denied(context: Context) -> Iterator[tuple[str, Evidence]]:
    """What is closed, and for each file that cannot be used for it the evidence: on the way to what runs, or named by
    the command. Where a shell waits for its user it is what lies in closed directories of PATH.
    """
    closed = frozenset(context.image.tree.closed)
    if not closed:
        return
    called = frozenset(path_of(context.image.config)) if context.roots.everything else None
    for record in context.image.files:
        if not context.closure.runs(record.path):
            continue
        course = (*context.ways.to(record.path), record.path)
        for number, path in enumerate(course):
            found = closed_at(path, closed)
            if found and (called is None or (found != path and posixpath.dirname(path) in called)):
                detail = "" if found == path else f"below {found}"
                yield found, structs.replace(context.evidence(record, detail), path=path, way=course[:number])
                break
    read = dict.fromkeys(context.roots.closed, "read by the command")
    for path, detail in (read | dict.fromkeys(_named_files(context).values(), "named by the command")).items():
        if found := closed_at(path, closed):
            detail += "" if found == path else f", below {found}"
            yield found, Evidence(path, detail=detail, way=context.roots.command[:1])


def _how_denied(context: Context, closed: str, first: Evidence) -> str:
    """The variant of the predicted error: by whether the runtime starts it itself, by its path or a name in PATH."""
    read = (*context.roots.closed, *_named_files(context).values())
    begun = not first.way and first.path not in read
    if not begun or context.roots.everything or not context.roots.command:
        return "within"
    if closed == first.path:
        return "file"
    return "" if "/" in _first_word(context) else "by-name"


def _how_closed(closed: str, path: str) -> str:
    if closed == path:
        return f"The mode of {path} lets none but its owner and group use it."
    return f"{path} lies in {closed}, whose mode lets none but its owner and group in."
