"""LIB001 to LIB008: libraries, versions, symbols and modules that are missing, also to what a runtime injects."""

import itertools
import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

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
from imgcheck.check.relocations import packed
from imgcheck.documents.facts import LIBCUDA, Linkage
from imgcheck.documents.image import IN_ARCHIVE, Problem
from imgcheck.documents.report import SEVERITIES, Evidence, Finding, Severity
from imgcheck.loader.closure import PRIVATE, PYTHON_DIRECTORIES
from imgcheck.loader.glibc import LIBC, asks_for_musl, family_of
from imgcheck.loader.node import ADDON

_SYSTEM = "/usr/"
"""Where others than wheels put libraries, too."""
_SHAPES = {"module": "python", "library": "opened"}
"""Of what a Python imports, and of what else something opens: variants of what one would see."""
_PLATFORM = r"-[a-z0-9_]+-linux-(?:gnu|musl)[a-z0-9]*"
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
        """The file where it is sought that could not be read (IMG001) and may well be it; "" where there is none."""
        found = self._unread_files.get(posixpath.basename(problem.needed), ())
        sought = set(map(posixpath.normpath, problem.searched)) if found else ()
        # Of /lib, and others that are links to what lies below /usr, the files are recorded there.
        places = {*sought, *(f"/usr{directory}" for directory in sought)}
        return next((path for path in found if posixpath.dirname(path) in places), "")

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
        if problem.injected or self._is_loaded_from_prefix(problem):
            return False
        return not self._rules.of_driver(problem.needed) or self._is_in_vain(problem)

    def _is_loaded_from_prefix(self, problem: Problem) -> bool:
        """Whether a Python package is known to load the library by its path, from where its wheel has put it."""
        package = posixpath.basename(_package(problem.root))
        return package in self._rules.python.loads_from_prefix and _is_beside(problem)

    def _is_in_vain(self, problem: Problem) -> bool:
        """Whether the command needs a library of the driver, which neither the host nor the runtime can give.

        The loader stops there, whether anything would compute on a GPU or not. Where the host has one, GPU007 tells of
        libcuda; other programs of the image, and modules beside which their package has others, are for GPUs alone.
        """
        if problem.root not in self._context.roots.always and not self._stops_package(problem):
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
        if problem.context == "entry":
            return "fail"
        if problem.context == "module":
            # What is for GPUs alone may be installed beside what the command uses, on nodes without one as well.
            if self._rules.of_driver(problem.needed):
                return "risk"
            if self._optional(problem):
                return "info"
            if self._one_of_many(problem):
                return "risk"
            # What wheels put into the prefix of an environment their packages may load from there by its path.
            return "risk" if _is_beside(problem) and not problem.root.startswith(_SYSTEM) else "fail"
        if problem.context == "helper" or self._is_native_module(problem):
            return "risk"
        return "risk" if _package(problem.root) and not self._aside(problem) else "info"

    def _is_native_module(self, problem: Problem) -> bool:
        """Whether a module misses it that an interpreter may load, or a library that a command names.

        Of Node.js's addons and of libraries in Java archives all but those for other systems.
        """
        if _is_packed(problem.root):
            return not self._is_of_other_system(problem)
        return problem.root in self._named

    def _is_of_other_system(self, problem: Problem) -> bool:
        """Whether it is one of Node.js's addons, or of libraries in Java archives, that has not found its C library."""
        return _is_packed(problem.root) and (problem.root, LIBC) not in self._context.closure.chosen

    @cached_property
    def _named(self) -> frozenset[str]:
        return frozenset(self._context.roots.named)

    def _optional(self, problem: Problem) -> bool:
        """A module without which its package, or the interpreter, goes on working."""
        name = posixpath.basename(problem.root).partition(".")[0]
        if "/lib-dynload/" in problem.root:
            return name in self._rules.python.optional_modules
        return self._aside(problem) or self._another_variant_loads(problem)

    def _another_variant_loads(self, problem: Problem) -> bool:
        """Whether a variant of the same module misses nothing: MPI.openmpi beside MPI.mpich, or one for this machine.

        Python itself imports no file with a dot in its module's name: the package picks the one that loads. Nor does
        it see files for other platforms than its own, which their names tell.
        """
        return not self._loading_variants.isdisjoint(_variants_of(problem.root))

    @cached_property
    def _loading_variants(self) -> frozenset[tuple[str, ...]]:
        return frozenset(itertools.chain.from_iterable(map(_variants_of, self._loading_modules)))

    def _aside(self, problem: Problem) -> bool:
        """Whether `problem` lies deeper in its Python package than a module of it that loads, and only there.

        Packages import what lies near their root; sub-packages for an optional library (TensorRT in TensorFlow's
        `contrib`) are imported by those who want them.
        """
        package = _package(problem.root)
        uppermost = min((path.count("/") for path in self._loading_of.get(package, ())), default=None)
        if not package or uppermost is None or problem.root.count("/") <= uppermost:
            return False
        return not any(
            other.needed == problem.needed and other.root.count("/") <= uppermost and _package(other.root) == package
            for other in self._context.closure.problems
        )

    def _one_of_many(self, problem: Problem) -> bool:
        """Whether one sub-package alone misses a library, beside others that load: envpool has one for each game."""
        package, own = _package(problem.root), posixpath.dirname(problem.root)
        if own == package:
            return False
        loading = {posixpath.dirname(path) for path in self._loading_of.get(package, ())} - {own}
        closure = self._context.closure
        needing = {other.path for other in closure.problems if other.needed == problem.needed}
        missing = {
            posixpath.dirname(start)
            for start in self._starts_of.get(package, ())
            if not needing.isdisjoint(closure.loaded[start])
        }
        return missing == {own} and posixpath.dirname(own) in map(posixpath.dirname, loading)

    def _stops_package(self, problem: Problem) -> bool:
        """Whether it stops a Python package whose uppermost modules miss something, one and all."""
        package = _package(problem.path) or _package(problem.root)
        sound, failing = (depths.get(package) for depths in self._depths)
        return problem.context == "module" and failing is not None and (sound is None or failing < sound)

    @cached_property
    def _depths(self) -> tuple[dict[str, int], dict[str, int]]:
        """How deep the uppermost module of each Python package lies that misses nothing, and the one that does."""
        missing = {problem.path for problem in self._fatal}
        loaded = self._context.closure.loaded
        sound: dict[str, int] = {}
        failing: dict[str, int] = {}
        for record, linkage in self._context.linked:
            if linkage.python_module:
                package, depth = _package(record.path), record.path.count("/")
                fails = record.path in missing or not missing.isdisjoint(loaded.get(record.path, ()))
                depths = failing if fails else sound
                depths[package] = min(depth, depths.get(package, depth))
        return sound, failing

    @cached_property
    def _fatal(self) -> list[Problem]:
        """What a file does not get loaded for."""
        return [problem for problem in self._context.closure.problems if problem.kind != "call"]

    @cached_property
    def _loading_modules(self) -> list[str]:
        """Extension modules that miss nothing but, at most, the driver's libraries and what their package loads."""
        of_driver = self._rules.of_driver
        failing = {
            p.root
            for p in self._fatal
            if p.kind != "library" or not (p.injected or of_driver(p.needed) or self._is_loaded_from_prefix(p))
        }
        modules = (record.path for record, linkage in self._context.linked if linkage.python_module)
        return [path for path in modules if path not in failing]

    @cached_property
    def _loading_of(self) -> dict[str, list[str]]:
        return _by_package(self._loading_modules)

    @cached_property
    def _starts_of(self) -> dict[str, list[str]]:
        return _by_package(self._context.closure.loaded)

    def _variant(self, problem: Problem) -> str:
        if problem.kind == "interpreter":
            return "interpreter-refused" if problem.complaint else "interpreter"
        shape = _SHAPES.get(problem.context, "")
        if self._is_told_by_musl(problem.root):
            shape = "python-musl" if shape == "python" else "musl"
        return "-".join(filter(None, (shape, "refused" if problem.refused else "")))

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
        if problem.context in ("entry", "module"):
            return "fail"
        # Node.js's packages bring addons for several releases of the C library, of which they pick one.
        native = self._is_native_module(problem) and not problem.root.endswith(ADDON)
        return "risk" if problem.context == "helper" or native or _package(problem.root) else "info"

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
        return self._context.wants_nvidia or any(
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
            if problem.kind in ("symbol", "call") and not self._is_of_other_system(problem):
                groups[_package(problem.path) or problem.path].append(problem)
        findings = [self._missing_symbol(problems) for problems in groups.values()]
        return self._answers.conclude(
            "LIB007", findings, "what the command reaches finds every symbol that it asks for"
        )

    def _missing_symbol(self, problems: list[Problem]) -> Finding:
        severity, first, evidence = self._weighed(problems, self._symbol_severity)
        shape = "python" if first.context == "module" else "opened" if first.context == "library" else ""
        if self._is_told_by_musl(first.root):
            shape = "python-musl" if shape == "python" else "musl"
        return self._context.finding(
            "LIB007",
            severity,
            first.needed,
            evidence,
            variant=shape,
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
        elif problem.kind in ("symbol", "call"):
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


def _is_packed(path: str) -> bool:
    """Whether the file comes in a package that brings the like of it for several systems."""
    return path.endswith(ADDON) or IN_ARCHIVE in path


def _is_beside(problem: Problem) -> bool:
    """Whether the image has the library in `lib` of the prefix that the module is installed in, where wheels put some.

    In /opt/venv/lib for /opt/venv/lib/python3.11/site-packages/pkg/core.so.
    """
    for part in PYTHON_DIRECTORIES:
        above, found, _ = problem.root.partition(part)
        if found:
            return any(posixpath.dirname(path) == posixpath.dirname(above) for path in problem.elsewhere)
    return False


def _variants_of(module: str) -> Iterator[tuple[str, ...]]:
    """What all variants of an extension module share.

    Of "/p/MPI.mpich.cpython-311-x86_64-linux-gnu.so" these are its directory, its name and the tag of the interpreter,
    and what is left of its path without the platform in this tag (PEP 3149).
    """
    directory, _, name = module.rpartition("/")
    parts = name.split(".", 2)
    if len(parts) == 3 and parts[2].endswith(".so"):
        yield directory, parts[0], parts[2]
    plain = re.sub(_PLATFORM, "", name)
    if plain != name:
        yield directory, plain


def _by_package(paths: Iterable[str]) -> dict[str, list[str]]:
    """Those of `paths` that lie in each Python package, and in none ("")."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        found[_package(path)].append(path)
    return found


def _package(path: str) -> str:
    """The directory of the top-level Python package in which `path` lies; empty outside of packages."""
    for part in PYTHON_DIRECTORIES:
        head, found, tail = path.partition(part)
        if found and "/" in tail:
            return head + part + tail.partition("/")[0]
    return ""


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
        return f"Use a base image with glibc {floor} or newer, or a build of {problem.path} for the older one."
    if problem.version.startswith(("GLIBCXX_", "CXXABI_")):
        return (
            f"Install a newer libstdc++ than {problem.provider}; where another copy shadows it (conda, a copied one), "
            "remove that copy or put the newer one first in LD_LIBRARY_PATH."
        )
    return f"Install the version of {problem.needed} that {problem.path} was built with."
