"""LIB001 to LIB008: libraries, versions, symbols and modules that are missing, also to what a runtime injects."""

import posixpath
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain

import msgspec

from imgcheck import versions
from imgcheck.check.arch import may_execute
from imgcheck.check.context import Answers, Context, severity_for
from imgcheck.check.gpu_use import lacks_nvidia
from imgcheck.check.loader_rules import (
    LoaderRules,
    elsewhere_note,
    image_glibc,
    loader_rules,
    package_remedy,
    path_remedy,
    places,
)
from imgcheck.check.modules import misfits
from imgcheck.check.python_builds import built_for_others
from imgcheck.check.python_libraries import opened
from imgcheck.check.python_modules import PythonModules, is_beside, package_of
from imgcheck.check.relocations import packed
from imgcheck.documents.facts import LIBCUDA, Linkage
from imgcheck.documents.image import IN_ARCHIVE, JAVA_ARCHIVES, Problem
from imgcheck.documents.report import SEVERITIES, Evidence, Finding, Severity
from imgcheck.loader.closure import PRIVATE
from imgcheck.loader.glibc import LIBC, asks_for_musl, family_of
from imgcheck.loader.node import ADDON

_SYSTEM = "/usr/"
"""Where others than wheels put libraries, too."""
_SHAPES = {"module": "python", "library": "opened", "frozen": "frozen"}
"""Of what a Python imports, and of what else something opens: variants of what one would see."""
_DRIVER_REMEDY = (
    "It belongs to the NVIDIA driver of the host: run on a node that has one, by a runtime that brings it into the "
    "container (docker --gpus all, apptainer --nv)."
)


def check(context: Context) -> Answers:
    """LIB001 to LIB008 for one cell."""
    return _Libraries(context).answers()


class _Libraries:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._rules: LoaderRules = loader_rules(context.knowledge)
        self._modules = PythonModules(context, self._rules)
        self._answers = Answers()

    def answers(self) -> Answers:
        if not any(facts.linkage is not None for facts in self._context.image.objects.values()):
            for rule in ("LIB001", "LIB002", "LIB003", "LIB004", "LIB005", "LIB006", "LIB007", "LIB008"):
                self._answers.answer(rule, "not-applicable", "the image holds no ELF program or library")
            return self._answers
        self._missing_libraries()
        self._missing_versions()
        self._injected()
        packed(self._context, self._answers)
        misfits(self._context, self._answers)
        opened(self._context, self._answers)
        self._missing_symbols()
        built_for_others(self._context, self._answers)
        return self._answers

    # LIB001 ----------------------------------------------------------------------------------------------------------

    def _missing_libraries(self) -> None:
        groups: dict[str, list[Problem]] = defaultdict(list)
        unread: list[str] = []
        for problem in self._context.closure.problems:
            if self._starts(problem) or (problem.kind == "library" and self._counts(problem)):
                path = "" if problem.refused else self._unread(problem)
                if not path:
                    groups[problem.needed].append(problem)
                elif self._context.closure.runs(problem.root):
                    unread.append(f"whether {path} serves {problem.path} is not known, since it could not be read")
        findings = [self._missing(needed, problems) for needed, problems in groups.items()]
        fine = "what the command reaches finds every library that it needs"
        self._answers.conclude("LIB001", findings, fine, next(iter(unread), ""))

    def _starts(self, problem: Problem) -> bool:
        """Whether it is a program that may be started: firmware, and tools for other machines, lie aside."""
        if problem.kind != "interpreter":
            return False
        linkage = self._linkage(problem.path)
        return problem.context == "entry" or linkage is None or may_execute(self._context, linkage.machine)

    def _unread(self, problem: Problem) -> str:
        """What could not be read (IMG001): a file where it is sought that may be it, or a directory that may hold it.

        "" where there is neither.
        """
        image, found = self._context.image, self._unread_files.get(posixpath.basename(problem.needed), ())
        if not image.unreadable:
            return ""
        sought = set(map(posixpath.normpath, (*problem.searched, posixpath.dirname(problem.needed) or "/")))
        # Of /lib, and others that are links to what lies below /usr, the files are recorded there.
        places = {*sought, *(f"/usr{directory}" for directory in sought)}
        held = (path for path in found if posixpath.dirname(path) in places)
        return next(chain(held, filter(None, map(image.unread_at, sorted(places)))), "")

    @cached_property
    def _unread_files(self) -> dict[str, list[str]]:
        """Files that nothing is known of, by what may be their soname: libx.so.1.2 by that, libx.so.1 and libx.so."""
        found: dict[str, list[str]] = defaultdict(list)
        for path in self._context.image.unreadable:
            record = self._context.records.get(path)
            if record is None or self._context.image.facts(record).linkage is None:
                name = posixpath.basename(path)
                while ".so" in name:
                    found[name].append(path)
                    name = name.rpartition(".")[0]
        return found

    def _counts(self, problem: Problem) -> bool:
        if problem.injected or self._modules.is_loaded_from_prefix(problem):
            return False
        return not self._rules.of_driver(problem.needed) or self._is_in_vain(problem)

    def _is_in_vain(self, problem: Problem) -> bool:
        """Whether the command needs a library of the driver, which neither the host nor the runtime can give.

        The loader stops there, whether anything would compute on a GPU or not. Where the host has one, GPU007 tells of
        libcuda; other programs of the image, and modules beside which their package has others, are for GPUs alone.
        """
        if problem.root not in self._context.roots.always and not self._modules.stops_package(problem):
            return False
        without = lacks_nvidia(self._context.host)
        return without or (not self._context.runtime.injects_driver and problem.needed != LIBCUDA)

    def _missing(self, needed: str, problems: list[Problem]) -> Finding:
        severity, first, evidence = self._weighed(problems, self._library_severity)
        return self._context.finding(
            "LIB001",
            severity,
            needed,
            evidence,
            variant=self._variant(first),
            program=first.root,
            path=first.path,
            refused=first.refused,
            complaint=first.complaint,
            searched=places(first.searched) or "no directory: the kernel opens it by its path",
            note=_note(first),
            remedy=self._library_remedy(first),
        )

    def _library_severity(self, problem: Problem) -> Severity:
        if problem.context in ("entry", "frozen"):
            return "fail"
        if problem.context == "module":
            # What is for GPUs alone may be installed beside what the command uses, on nodes without one as well.
            if self._rules.of_driver(problem.needed):
                return "risk"
            if self._modules.optional(problem):
                return "info"
            if self._modules.one_of_many(problem) or problem.root in self._guarded:
                return "risk"
            # What wheels put into the prefix of an environment their packages may load from there by its path.
            return "risk" if is_beside(problem) and not problem.root.startswith(_SYSTEM) else "fail"
        if problem.context == "helper" or self._is_native_module(problem):
            return "risk"
        return "risk" if package_of(problem.root) and not self._modules.aside(problem) else "info"

    def _is_native_module(self, problem: Problem) -> bool:
        """Whether a module misses it that an interpreter may load, or a library that a command names.

        Of what is packed for several systems all but those for others.
        """
        if self._is_for_several(problem.root):
            return not self._is_of_other_system(problem)
        return problem.root in self._named or problem.root.startswith(self._homes)

    def _is_of_other_system(self, problem: Problem) -> bool:
        """Whether it is one of those for several systems that has not found its C library."""
        return self._is_for_several(problem.root) and (problem.root, LIBC) not in self._context.closure.chosen

    def _is_for_several(self, path: str) -> bool:
        """Whether it comes in a package that brings the like of it for several systems: of Node.js or Java."""
        return path.endswith(ADDON) or path.partition(IN_ARCHIVE)[0].endswith(JAVA_ARCHIVES)

    @cached_property
    def _homes(self) -> tuple[str, ...]:
        """Where the libraries of programs lie that PyInstaller made."""
        return tuple(f"{home.rstrip('/')}/" for home in self._context.image.tree.frozen.values())

    @cached_property
    def _guarded(self) -> frozenset[str]:
        return frozenset(self._context.roots.guarded)

    @cached_property
    def _named(self) -> frozenset[str]:
        return frozenset(self._context.roots.named)

    def _variant(self, problem: Problem) -> str:
        if problem.kind == "interpreter":
            return "interpreter-refused" if problem.complaint else "interpreter"
        return "-".join(filter(None, (self._shape(problem), "refused" if problem.refused else "")))

    def _shape(self, problem: Problem) -> str:
        """By who says what one would see: a variant of the catalogue's texts."""
        shape = _SHAPES.get(problem.context, "")
        if self._is_told_by_musl(problem.root):
            return "python-musl" if shape == "python" else "musl"
        return shape

    def _is_told_by_musl(self, path: str) -> bool:
        """Whether the loader that starts or opens the file at `path` is musl's, as far as the image tells."""
        linkage = self._linkage(path)
        if linkage is None or linkage.interpreter:
            return linkage is not None and asks_for_musl(linkage)
        return family_of(linkage) == "musl" or (self._has_musl and not self._context.closure.libcs)

    @cached_property
    def _has_musl(self) -> bool:
        return any(asks_for_musl(linkage) for _, linkage in self._context.linked)

    def _linkage(self, path: str) -> Linkage | None:
        record = self._context.records.get(path)
        return self._context.image.facts(record).linkage if record else None

    def _library_remedy(self, problem: Problem) -> str:
        if problem.refused:
            return _refused_remedy(problem)
        if problem.kind == "interpreter" and problem.complaint:
            return f"Set the execute bit of {problem.needed}: RUN chmod +x in the Dockerfile, or COPY --chmod=755."
        if self._rules.of_driver(problem.needed):
            return _DRIVER_REMEDY
        if problem.elsewhere:
            return path_remedy(problem.elsewhere[:1])
        if problem.kind == "interpreter":
            return package_remedy(self._context.knowledge, posixpath.basename(problem.needed)) or (
                "Install the C library whose loader this is, or take a build of the program for this image's one."
            )
        return package_remedy(self._context.knowledge, problem.needed) or (
            f"Install the package that brings {problem.needed} (apt-file search, dnf provides or apk search name it), "
            "or copy the library into the image and run ldconfig."
        )

    # LIB002 ----------------------------------------------------------------------------------------------------------

    def _missing_versions(self) -> None:
        groups: dict[str, list[Problem]] = defaultdict(list)
        for problem in self._context.closure.problems:
            if problem.kind == "version" and not problem.injected:
                groups[problem.needed].append(problem)
        findings = [self._missing_version(needed, problems) for needed, problems in groups.items()]
        self._answers.conclude("LIB002", findings, "every symbol version that the reached files need is defined")

    def _missing_version(self, needed: str, problems: list[Problem]) -> Finding:
        severity, first, evidence = self._weighed(problems, self._version_severity)
        foreign = first.version == PRIVATE
        reason = (
            f"is of another release of glibc than the loader {first.provider}, and they work only together."
            if foreign
            else f"was linked against a newer {needed} than {first.provider}, which the loader chooses and which ends "
            f"at {self._newest(first)}."
        )
        return self._context.finding(
            "LIB002",
            severity,
            needed,
            evidence,
            variant="foreign" if foreign else _SHAPES.get(first.context, ""),
            program=first.root,
            path=first.path,
            provider=first.provider,
            version=first.version,
            why=f"{first.path} {reason}",
            remedy=_version_remedy(first),
        )

    def _version_severity(self, problem: Problem) -> Severity:
        if problem.root in self._guarded:
            return "risk"
        if problem.context in ("entry", "module", "frozen"):
            return "fail"
        # Node.js's packages bring addons for several releases of the C library, of which they pick one.
        native = self._is_native_module(problem) and not problem.root.endswith(ADDON)
        return "risk" if problem.context == "helper" or native or package_of(problem.root) else "info"

    def _newest(self, problem: Problem) -> str:
        """The newest version of the same family that the provider defines."""
        provider = self._context.closure.chosen.get((problem.path, problem.needed), "")
        linkage = self._linkage(provider)
        family = problem.version.rpartition("_")[0] + "_"
        own = [
            v for v in (linkage.verdef if linkage else ()) if v.startswith(family) and versions.parse(v[len(family) :])
        ]
        return max(own, key=lambda v: versions.parse(v[len(family) :]), default="other versions")

    # LIB003 ----------------------------------------------------------------------------------------------------------

    def _injected(self) -> None:
        closure = self._context.closure
        if not closure.injected:
            self._answers.answer(
                "LIB003", "not-applicable", f"{self._context.runtime.id} brings no library of this host"
            )
        elif not self._uses_driver():
            self._answers.answer("LIB003", "not-applicable", "nothing in the image uses the host's libraries")
        elif self._musl_image():
            self._answers.conclude("LIB003", [self._musl_finding()], "")
        elif closure.assumed:
            self._bounded()
        else:
            self._probed()

    def _uses_driver(self) -> bool:
        """What wants a GPU of NVIDIA in the image, or a program that loads an injected file."""
        closure = self._context.closure
        return bool(self._context.nvidia_files) or any(
            found in closure.injected for (path, _), found in closure.chosen.items() if path not in closure.injected
        )

    def _musl_image(self) -> bool:
        linkages = [facts.linkage for facts in self._context.image.objects.values() if facts.linkage is not None]
        programs = [linkage for linkage in linkages if linkage.interpreter]
        return bool(programs) and all(map(asks_for_musl, programs))

    def _musl_finding(self) -> Finding:
        path = self._context.closure.opens.get(LIBCUDA) or min(self._context.closure.injected)
        return self._context.finding(
            "LIB003",
            "fail",
            "musl",
            (Evidence(path=path, detail="library of the host, built for glibc"),),
            variant="musl",
            path=path,
            why="The image's C library is musl; the driver's libraries are built for glibc and load nowhere else.",
            remedy="Use a base image with glibc (debian, ubuntu, rockylinux) for GPU work.",
        )

    def _bounded(self) -> None:
        """A described host: its files are not known, its glibc bounds what they can need."""
        host, image = self._context.host.glibc.value, image_glibc(self._context)
        if not host:
            reason = "the host's glibc and the version needs of its driver libraries are not known; give --glibc"
            self._answers.answer("LIB003", "unknown", reason)
        elif not image:
            self._answers.answer("LIB003", "unknown", "the image's glibc is not known, so what it defines is neither")
        elif versions.at_least(image, host):
            reason = f"the host's glibc {host} is not newer than the image's {image}"
            self._answers.answer("LIB003", "ok", reason)
        else:
            self._answers.conclude("LIB003", [self._bounded_finding(host, image)], "")

    def _bounded_finding(self, host: str, image: str) -> Finding:
        path = self._context.closure.opens.get(LIBCUDA) or min(self._context.closure.injected)
        return self._context.finding(
            "LIB003",
            "risk",
            "libc.so.6",
            (Evidence(path=path, detail=f"host glibc {host}, image glibc {image}"),),
            program="the program",
            provider="libc.so.6",
            version=f"GLIBC_{host}",
            path=path,
            why=(
                f"The host's libraries may need up to glibc {host}, and the image has {image}. NVIDIA's own files "
                "are built for old versions; those of the host's distribution (GL dispatch, MPI) often are not."
            ),
            remedy="Probe the host (imgcheck probe -o host.json) to settle it, or use a base image with a newer glibc.",
        )

    def _probed(self) -> None:
        groups: dict[str, list[Problem]] = defaultdict(list)
        for problem in self._context.closure.problems:
            if problem.injected and problem.kind in ("version", "library") and self._matters(problem):
                groups[problem.path].append(problem)
        findings = [self._injected_finding(path, problems) for path, problems in groups.items()]
        self._answers.conclude("LIB003", findings, "the injected host libraries find what they need in the image")

    def _matters(self, problem: Problem) -> bool:
        """Opened for computing, or loaded by a program of the image."""
        loaded_by_image = problem.root not in self._context.closure.injected
        return loaded_by_image or self._rules.for_compute(posixpath.basename(problem.root))

    def _injected_finding(self, path: str, problems: list[Problem]) -> Finding:
        _, first, evidence = self._weighed(problems, lambda _: "fail")
        missing = first.kind == "library"
        program = first.root if first.root not in self._context.closure.injected else "the program"
        severity: Severity = "risk" if missing else "fail"
        why = (
            f"The host's {path} needs {first.needed}, which is neither injected nor in the image."
            if missing
            else f"The host's {path} needs {first.version}; the image's {first.needed} ends at {self._newest(first)}."
        )
        return self._context.finding(
            "LIB003",
            severity,
            posixpath.basename(path),
            evidence,
            variant="missing" if missing else "",
            program=program,
            provider=first.needed if missing else first.provider,
            version=first.version,
            path=path,
            why=why,
            remedy=(
                f"Install {first.needed} in the image." if missing else
                "Use a base image whose glibc and libstdc++ are at least as new as the host's, or a runtime that "
                "leaves this library out (for Apptainer: --nvccli, or a shorter nvliblist.conf)."
            ),
        )  # fmt: skip

    # LIB007 ----------------------------------------------------------------------------------------------------------

    def _missing_symbols(self) -> None:
        if self._context.image.tree.undefined is None:
            return self._answers.answer("LIB007", "unknown", "the profile tells nothing of symbols; make it again")
        groups: dict[str, list[Problem]] = defaultdict(list)
        for problem in self._context.closure.problems:
            if problem.of_symbol and not self._is_of_other_system(problem):
                groups[package_of(problem.path) or problem.path].append(problem)
        findings = [self._missing_symbol(problems) for problems in groups.values()]
        return self._answers.conclude(
            "LIB007", findings, "what the command reaches finds every symbol that it asks for"
        )

    def _missing_symbol(self, problems: list[Problem]) -> Finding:
        severity, first, evidence = self._weighed(problems, self._symbol_severity)
        return self._context.finding(
            "LIB007",
            severity,
            first.needed,
            evidence,
            variant=self._shape(first),
            program=first.root,
            path=first.path,
            when="is called" if first.kind == "call" else "is loaded",
            note=_symbol_note(first),
            remedy=_symbol_remedy(first),
        )

    def _symbol_severity(self, problem: Problem) -> Severity:
        if problem.kind == "call":
            return "risk" if problem.context == "entry" else "info"
        return self._library_severity(problem)

    # common ----------------------------------------------------------------------------------------------------------

    def _weighed(
        self, problems: Sequence[Problem], severity_of: Callable[[Problem], Severity]
    ) -> tuple[Severity, Problem, tuple[Evidence, ...]]:
        """The worst severity after reach, the problem that has it, and all evidence with that first."""
        pairs = [(self._evidence(problem), severity_of(problem), problem) for problem in problems]
        pairs.sort(key=lambda item: SEVERITIES.index(severity_for(item[1], (item[0],))))
        _, severity, first = pairs[0]
        # A weaker case must not be lifted by the reach of a stronger one: its evidence stands behind, not beside it.
        return severity_for(severity, (pairs[0][0],)), first, tuple(evidence for evidence, _, _ in pairs)

    def _evidence(self, problem: Problem) -> Evidence:
        detail = f"needs {problem.needed}"
        if problem.version:
            detail = f"needs {problem.version} of {problem.needed}; {problem.provider} is loaded"
        elif problem.of_symbol:
            detail = f"asks for {problem.needed}" + (f" and {problem.more} more" if problem.more else "")
        data = {
            "needed": problem.needed,
            "needed_by": problem.path,
            "loaded_by": problem.root,
            "searched": ":".join(problem.searched),
            "version": problem.version,
            "provider": problem.provider,
            "elsewhere": ":".join(problem.elsewhere),
            "refused": problem.refused,
        }
        data = {name: value for name, value in data.items() if value}
        evidence = self._context.evidence_at(problem.path, detail, **data)
        if problem.path not in self._context.records:
            return evidence
        return msgspec.structs.replace(evidence, reach=self._context.closure.reach(problem.root))


def _refused_remedy(problem: Problem) -> str:
    what = f"Remove {problem.refused}, which is no library (`file` and `ls -l` show what it is)"
    if problem.elsewhere:
        return f"{what}: {problem.elsewhere[0]} is one, and the loader must come to it."
    return (
        f"{what}, or put the library there. A runtime that mounts a library of its host leaves an empty file in its "
        "place, and git one with the text `git-lfs` where `git lfs pull` was not run."
    )


def _note(problem: Problem) -> str:
    if problem.kind == "interpreter" and problem.complaint:
        return f" {problem.needed} is there, without an execute bit."
    if problem.refused:
        return f" It stops at {problem.refused}, which is no library."
    if problem.elsewhere:
        return elsewhere_note(problem.elsewhere[:1])
    if problem.skipped:
        return f" {problem.skipped[0]} has the name, but is for another machine."
    return ""


def _symbol_note(problem: Problem) -> str:
    if problem.provider:
        return f" {problem.provider} is loaded, which lacks it; {problem.elsewhere[0]} has it."
    if problem.elsewhere:
        return f" {problem.elsewhere[0]} has it, which nothing loads."
    return " No file of the image has it."


def _symbol_remedy(problem: Problem) -> str:
    if problem.provider:
        return (
            f"Let the loader come to {problem.elsewhere[0]} first (LD_LIBRARY_PATH, RUNPATH), or take the directory of "
            f"{problem.provider} out of its search."
        )
    if problem.elsewhere:
        return f"Link {problem.path} with {posixpath.basename(problem.elsewhere[0])}, or preload that (LD_PRELOAD)."
    return (
        f"{problem.path} was built with another release of a library than the image has: install releases of both that "
        "belong together, or build it anew in the image."
    )


def _version_remedy(problem: Problem) -> str:
    if problem.version == PRIVATE:
        return (
            f"Take {problem.path} out of the search (LD_LIBRARY_PATH, RUNPATH), or start {problem.root} by the loader "
            f"that came with it: {problem.needed} --library-path DIRECTORY PROGRAM."
        )
    if problem.version.startswith("GLIBC_"):
        floor = problem.version.removeprefix("GLIBC_")
        if problem.context == "frozen":
            return f"Use a base image with glibc {floor} or newer, or run PyInstaller on a system with the older one."
        return f"Use a base image with glibc {floor} or newer, or a build of {problem.path} for the older one."
    if problem.version.startswith(("GLIBCXX_", "CXXABI_")):
        return (
            f"Install a newer libstdc++ than {problem.provider}; where another copy shadows it (conda, a copied one), "
            "remove that copy or put the newer one first in LD_LIBRARY_PATH."
        )
    return f"Install the version of {problem.needed} that {problem.path} was built with."
