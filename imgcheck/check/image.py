"""IMG001 to IMG003: what of the image itself could not be read or found, and so leaves the verdict open."""

import posixpath
import re
from collections.abc import Iterator

from imgcheck.check.context import Answers, Context
from imgcheck.documents.image import Unstartable
from imgcheck.documents.report import Evidence, Finding

_CONVERT = "Convert the file: sed -i 's/\\r$//' {path}, and keep it so (.gitattributes: *.sh text eol=lf)."
_TOLD = {
    "absent": (
        "No file of the image answers to {word}, so it starts only where something from outside, such as a mounted "
        "directory, brings it.",
        "Correct ENTRYPOINT or CMD, or name what will run: imgcheck image REF -- COMMAND, or --entry PATH.",
    ),
    "nowhere": (
        "No directory of PATH has it: {searched}.",
        "Install it in the image, correct its command or PATH, or name what will run: imgcheck image REF -- COMMAND.",
    ),
    "not-executable": (
        "No execute bit is set on {path}.",
        "Set it in the Dockerfile: RUN chmod +x {path}, or COPY --chmod=755.",
    ),
    "no-format": (
        "{path} is no program, and does not begin with #! and an interpreter.",
        "Begin the file with #!/bin/sh, or name its interpreter in ENTRYPOINT.",
    ),
    "no-interpreter": (
        "The first line of {path} asks for {interpreter}, which is not in the image.",
        "Install {program} in the image, or change the first line of {path}.",
    ),
    "interpreter-not-executable": (
        "The first line of {path} asks for {interpreter}, on which no execute bit is set.",
        "Set it in the Dockerfile: RUN chmod +x {interpreter}.",
    ),
    "carriage-return": (
        "The first line of {path} ends in a carriage return (DOS line ends), which belongs to the interpreter's name: "
        "{interpreter}\\r.",
        _CONVERT,
    ),
    "carriage-return-within": (
        "The lines of {path} end in carriage returns (DOS line ends), which belong to their last words: {word}\\r.",
        _CONVERT,
    ),
    "unknown-option": (
        "dash, which runs it, has no pipefail as distributions have it (0.5.12 and older), and ends a script there.",
        "Begin the script with #!/bin/bash where the image has that, or leave pipefail out.",
    ),
}
"""Why a program does not start, and the way out: by Unstartable.reason, where nothing can bring what is absent, or
where a script's own lines are meant."""
_LIBRARY = r"\.so(?:\.|$)"
_OF_IMAGES = ("/bin/", "/sbin/", "/usr/", "/lib")
_PROGRAMS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")


def check(context: Context) -> Answers:
    """IMG001 unreadable files, IMG002 a command that does not start, IMG003 an image without programs."""
    answers = Answers()
    _unreadable(context, answers)
    _unstartable(context, answers)
    _no_program(context, answers)
    return answers


def _unreadable(context: Context, answers: Answers) -> None:
    decisive: list[Evidence] = []
    others: list[Evidence] = []
    for path, reason in sorted(context.image.unreadable.items()):
        evidence, may_run = _judged(context, path, reason)
        (decisive if may_run else others).append(evidence)
    findings = [
        context.finding("IMG001", "info", subject, tuple(found), path=found[0].path, reason=found[0].detail)
        for subject, found in (("reached", decisive), ("unreached", others))
        if found
    ]
    fine = "nothing that the command reaches was unreadable" if others else "every program and library was read"
    more = f" and {len(decisive) - 1} more" if len(decisive) > 1 else ""
    unknown = f"{decisive[0].path}{more} could not be read: {decisive[0].detail}" if decisive else ""
    answers.conclude("IMG001", findings, fine, unknown)


def _judged(context: Context, path: str, reason: str) -> tuple[Evidence, bool]:
    """The evidence for an unreadable file, and whether it may run: as a program, or as a library that is loaded."""
    record = context.records.get(path)
    named_as_code = bool(re.search(_LIBRARY, posixpath.basename(path)))
    if record is None:
        # Where a directory could not be read, nothing is known of what lies below it.
        holds = any(f"{place}/".startswith(f"{path.rstrip('/')}/") for place in (*_PROGRAMS, *_sought(context)))
        return Evidence(path, detail=reason), named_as_code or holds or posixpath.dirname(path) in _PROGRAMS
    reached = context.closure.runs(path)
    return context.evidence(record, reason), reached and (record.executable or named_as_code)


def _sought(context: Context) -> Iterator[str]:
    """Where the command's words lead, and where PATH does if nothing that it names was found."""
    config = context.image.config
    yield from (posixpath.join(config.working_directory or "/", word) for word in context.roots.command)
    if not context.roots.entries:
        yield from config.variables.get("PATH", "").split(":")


def _unstartable(context: Context, answers: Answers) -> None:
    if not context.roots.command:
        answers.answer("IMG002", "not-applicable", "no command is known")
        return
    findings = [_not_starting(context, each) for each in context.roots.unstartable]
    fine = "what the command names is in the image and starts"
    if context.roots.everything:
        fine = "the command leaves a shell to its user, or names nothing: every file of the image counts as run"
    elif context.roots.in_part:
        fine = "what can be told of the command is in the image and starts; only running it tells what else it starts"
    answers.conclude("IMG002", findings, fine)


def _not_starting(context: Context, what: Unstartable) -> Finding:
    told = "nowhere" if _is_nowhere(context, what) else what.reason
    may_start = told in ("absent", "no-format", "unknown-option") or not _comes_with_images(what.interpreter)
    why, remedy = _told(what, "carriage-return-within" if _is_within(what) else told)
    if _is_argument(context, what):
        why = f"{why} {_alone(context)}"
    asked = what.interpreter.rpartition(" ")[2]
    return context.finding(
        "IMG002",
        "risk" if may_start else "fail",
        what.word,
        (Evidence(what.path or what.word, detail=f"started by {what.by}" if what.by else ""),),
        variant=_variant(what),
        command=what.word,
        by=posixpath.basename(what.by),
        interpreter=what.interpreter.partition(" ")[0],
        asked=asked,
        why=why,
        remedy=remedy,
    )


def _is_nowhere(context: Context, what: Unstartable) -> bool:
    """Whether what is absent was sought in directories that come with the image, all of them, and is surely wanted.

    A file that is named by its path may be mounted by itself; what a script runs is certain when it runs; and an
    argument of ENTRYPOINT need not be a program.
    """
    from imgcheck.loader.launchers import launchers  # which a preflight without this finding does not need

    if not what.searched or (what.by and what.by not in launchers()) or _is_argument(context, what):
        return False
    return all(_comes_with_images(f"{place}/") or _has_files(context, place) for place in what.searched)


def _is_argument(context: Context, what: Unstartable) -> bool:
    """Whether it is a word given in place of CMD, which ENTRYPOINT gets where that is not left out."""
    return not what.by and bool(context.image.config.entrypoint) and context.roots.command[0] != what.word


def _has_files(context: Context, directory: str) -> bool:
    """Whether the image brings programs or scripts in a directory."""
    paths = (*context.records, *(script.path for script in context.image.tree.scripts))
    return any(path.startswith(f"{directory.rstrip('/')}/") for path in paths)


def _comes_with_images(path: str) -> bool:
    """What no site mounts over an image: an interpreter elsewhere (/cvmfs, /gpfs) may come from the host."""
    return not path or path.startswith(_OF_IMAGES)


def _alone(context: Context) -> str:
    entrypoint = context.image.config.entrypoint[0]
    how = f"So it is where the command is started by itself ({context.runtime.family} exec)"
    return f"{how}; as an argument of the image's ENTRYPOINT it is for {entrypoint} to understand."


def _told(what: Unstartable, reason: str) -> tuple[str, str]:
    """Why it does not start, and the way out."""
    why, remedy = _TOLD[reason]
    names = {
        "word": what.word,
        "path": what.path,
        "interpreter": what.interpreter,
        "program": posixpath.basename(what.interpreter),
        "searched": ":".join(what.searched),
    }
    return why.format(**names), remedy.format(**names)


def _is_within(what: Unstartable) -> bool:
    """Whether a line of a script ends in a carriage return, and not the one that names its interpreter."""
    return what.reason == "carriage-return" and not what.interpreter


def _variant(what: Unstartable) -> str:
    """The predicted error, by who starts it: the container's runtime, or a program of the image."""
    from imgcheck.loader.launchers import launchers  # which a preflight without this finding does not need

    if _is_within(what):
        return "carriage-return-by"
    if what.reason == "carriage-return":
        program, _, rest = what.interpreter.partition(" ")
        if not rest:
            return what.reason
        return "carriage-return-env" if posixpath.basename(program) == "env" else "carriage-return-option"
    if what.reason == "absent" and what.by in launchers():
        return "absent-launcher"
    if what.by and what.reason != "no-format":
        return f"{what.reason}-by"
    if "/" in what.word:
        return "absent-path" if what.reason == "absent" else what.reason
    # Whatever fails in a search of PATH, the runtime says that it found nothing.
    return what.reason if what.reason in ("no-format", "no-interpreter") else ""


def _no_program(context: Context, answers: Answers) -> None:
    found = [context.image.facts(record) for record in context.image.files]
    if any(facts.linkage for facts in found):
        answers.answer("IMG003", "ok", "the image holds programs")
    elif any(facts.error for facts in found):
        answers.answer("IMG003", "unknown", "none of the image's programs and libraries could be read")
    else:
        answers.answer("IMG003", "unknown", "the image holds no program or library, so there is nothing to check")
