"""ld.so's work over a whole image: who loads what, from where, what is missed, and how each file is reached."""

import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Literal

from msgspec import Struct

from imgcheck.documents.facts import LIBCUDA
from imgcheck.documents.image import (
    CXX,
    IN_ARCHIVE,
    ONE_OF,
    REACHES,
    RUNS,
    ImageProfile,
    Opener,
    Problem,
    Reach,
    Undefined,
)
from imgcheck.loader.abi import Abi
from imgcheck.loader.closure import PRIVATE, Closure, Roots, in_python_packages
from imgcheck.loader.environment import Environment, environment_of, with_directory, with_loader_variables
from imgcheck.loader.glibc import is_libc
from imgcheck.loader.injection import Injection
from imgcheck.loader.interpreters import opener, openers
from imgcheck.loader.node import ADDON
from imgcheck.loader.opened import Opened, open_libraries
from imgcheck.loader.outcomes import Company, Outcome, Start
from imgcheck.loader.process import Object, Process
from imgcheck.loader.system import Refused, System, Systems
from imgcheck.loader.tree import Tree

_CONTEXTS: tuple[Opener, ...] = ("entry", "frozen", "module", "helper", "library")
# Opened by name at run time, by the CUDA runtime and by frameworks, from whatever the loader finds first.
_OPENED_BY_NAME = ("libcuda.so", "libnvidia-")
_PYTHON, _LIBPYTHON = "python", "libpython"
_REPAIRED = re.compile(r"-[0-9a-f]{8}\.(?:so|\d)")


def close(image: ImageProfile, roots: Roots | None = None, levels: tuple[str, ...] = ()) -> Closure:
    """All that `roots` reach in `image` by itself, and what the loader misses.

    `roots` None means find_roots(image). `levels` are the directories that the host's CPU opens (hwcaps_of); empty
    (unknown) takes the baseline files. For what runtimes place in the image, and for several, use one `Loader`.
    """
    return Loader(image, roots, levels).close()


_Kind = Literal["symbol", "call"]
_Absent = tuple[str, str, Object, str]
"""A file, the library that it asks for, the object that became of that, and the symbol version that this lacks."""


class _Lack(Struct, frozen=True):
    """A file, and symbols that it asks for and nothing defines."""

    path: str
    what: Undefined


class _Company:
    """What a file loads besides itself, by `process`, which another file began that asks for the same."""

    def __init__(self, process: Process) -> None:
        self.process = process
        main, *others = process.objects
        self.told = Company(
            loaded=tuple([item.real for item in others]),
            found=tuple([(name, found.real) for name, found in main.libraries if found]),
            chosen={(item.real, name): found.real for item in others for name, found in item.libraries if found},
        )
        self.absent: list[_Absent] = [
            (item.real, *each) for item in others for each in process.absent_versions(item.linkage)
        ]
        """Symbol versions that the others miss."""
        foreign = process.foreign_libc() if process.within is None else None
        if foreign is not None:
            libc, loader = foreign
            self.absent.append((libc.real, posixpath.basename(loader.opened), loader, PRIVATE))
        self._undefined = process.system.tree.image.tree.undefined or {}
        self._wanting = [path for path in self.told.loaded if path in self._undefined]
        """Files that may not get all symbols."""

    def lacking(self, path: str) -> list[_Lack]:
        """What nothing defines of all that the file at `path` loads, itself among it."""
        if not self._wanting and path not in self._undefined:
            return []  # as nearly all
        within, loaded = self.process.within, {path, *self.told.loaded}
        asked = [_Lack(each, what) for each in (path, *self._wanting) for what in self._told_of.get(each, ())]
        return [
            lack
            for lack in asked
            if loaded.isdisjoint(lack.what.providers) and not (within and within.found(lack.what.providers))
        ]

    @cached_property
    def _told_of(self) -> dict[str, tuple[Undefined, ...]]:
        """What files may not get, as far as it can be told what they get.

        A library of the host may have anything, and so may one that is missing and not in the image: whoever opens the
        file may have loaded it before. Those of the driver have no names of C++. Where the image has what is missing,
        that has no more than the image.
        """
        tree = self.process.system.tree
        missing = [posixpath.basename(miss.name) for miss in self.process.all_misses]
        unknown = [name for name in missing if name not in tree.by_name]
        unknown += map(posixpath.basename, self.process.found(tree.host.keys()))
        if not all(name.startswith(_OPENED_BY_NAME) for name in unknown):
            return {}
        if not missing and not unknown:
            return self._undefined

        def is_told(what: Undefined) -> bool:
            return not (missing and what.providers) and (what.symbol.startswith(CXX) or not unknown)

        return {path: tuple(filter(is_told, found)) for path, found in self._undefined.items()}

    def namesake(self, paths: Iterable[str]) -> Object | None:
        """What is loaded in the place of one of these files, by its name."""
        linkage = self.process.system.tree.linkage
        names = (name for path in paths for name in (linkage[path].soname, posixpath.basename(path)) if name)
        return next(filter(None, map(self.process.loaded, names)), None)

    def mentions(self, path: str, soname: str) -> bool:
        """Whether the file at `path` has a part in it: then it means another file to each one that begins it."""
        return path in self._mentioned or soname in self._mentioned

    @cached_property
    def _mentioned(self) -> frozenset[str]:
        objects, told = self.process.objects, self.told
        asked = (name for item in objects for name, _ in item.libraries)
        needs = (need.library for item in objects[1:] for need in item.linkage.verneed)
        found = (path for _, path in told.found)
        # One that is preloaded is in every process, which that of its own start does not show.
        preloaded = map(self.process.loaded, self.process.system.preload)
        present = (item.real for item in preloaded if item)
        names = self.process.system.preload
        return frozenset(asked).union(told.loaded, told.chosen.values(), found, needs, names, present)


class Loader:
    """The loader's model of one image; what no runtime changes is worked out once."""

    def __init__(
        self,
        image: ImageProfile,
        roots: Roots | None = None,
        levels: tuple[str, ...] = (),
        outcomes: list[Outcome] | None = None,
    ) -> None:
        """`outcomes` are those that a profile keeps for the same roots and levels: good for `under` alone, since their
        problems are left out.
        """
        self.image = image
        self.roots = roots if roots is not None else _roots_of(image)
        self._levels = levels
        self._tree = Tree(image)
        self._environment = environment_of(image)
        self._outcomes_before = outcomes
        self._closures: dict[Injection, Closure] = {}

    def close(self) -> Closure:
        """The closure of the image alone."""
        return self._alone

    def under(self, injection: Injection) -> Closure:
        """The closure with what `injection` places in the image."""
        if injection not in self._closures:
            self._closures[injection] = self._with(injection)
        return self._closures[injection]

    @cached_property
    def _view(self) -> "_View":
        return _View(self._tree, self._environment, None, self._levels, self.roots)

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """Those of the image alone, the best reached ones first."""
        if self._outcomes_before is not None:
            return self._outcomes_before
        return sorted(_run_all(self._view, self.roots, self._environment), key=_rank)

    @cached_property
    def _alone(self) -> Closure:
        return _closure(self._view, self.outcomes, self.roots)

    def _with(self, injection: Injection) -> Closure:
        tree = self._injected(injection)
        view = _View(tree, self._environment, injection, self._levels, self.roots)
        names = self._changed_names(view, injection)
        changed = _changed_files(tree, names)
        # What failed is worked out anew as well, since it was sought in the runtime's directories, too.
        companies = {outcome.company for outcome in self.outcomes if outcome.company and not outcome.problems}
        unchanged = {company for company in companies if changed.isdisjoint(company.loaded)}
        if not names.isdisjoint(map(posixpath.basename, self._preloaded)):
            unchanged = set()  # every process has it
        outcomes = [
            outcome
            if outcome.company in unchanged and not outcome.problems and outcome.start.path not in changed
            else _run(view, outcome.start)
            for outcome in self.outcomes
        ] + [_run(view, start) for start in _injected_starts(tree, self.roots)]
        return _closure(view, outcomes, self.roots)

    @property
    def _preloaded(self) -> tuple[str, ...]:
        """Names of the libraries that are loaded into every program."""
        own = (with_loader_variables(self._environment, told) for told in self.roots.environments.values())
        every = [name for environment in (self._environment, *own) for name in environment.preload]
        return (*every, *self.image.tree.ld_so_preload)

    def _changed_names(self, after: "_View", injection: Injection) -> frozenset[str]:
        """Names whose search may end elsewhere once `injection` is in place."""
        names = {library.soname for library in injection.libraries}
        names |= {posixpath.basename(library.path) for library in injection.libraries}
        if injection.ldconfig:
            for path in after.tree.linkage:
                old = self._view.system(path).cache if path in self._tree.linkage else {}
                new = after.system(path).cache
                names |= {name for name in {*old, *new} if old.get(name) != new.get(name)}
                break
        return frozenset(names)

    def _injected(self, injection: Injection) -> Tree:
        if not injection.ldconfig:
            return self._tree.overlay(injection.directory, injection.libraries)
        scanned = (*self.image.tree.ld_so_conf, *self._tree.default_directories())
        return self._tree.relinked(injection.directory, injection.libraries, scanned)


def _roots_of(image: ImageProfile) -> Roots:
    from imgcheck.loader.roots import find_roots  # with the shell's language, for which a preflight has no time

    return find_roots(image)


class _View:
    """A tree with its dynamic loaders, under one injection."""

    def __init__(
        self,
        tree: Tree,
        environment: Environment,
        injection: Injection | None,
        levels: tuple[str, ...],
        roots: Roots,
    ) -> None:
        own = roots.environments
        self.tree, self.injection, self.steered = tree, injection, frozenset(roots.steered)
        self._systems = Systems(tree, environment, injection, levels)
        others = {
            told: Systems(tree, with_loader_variables(environment, told), injection, levels)
            for told in dict.fromkeys(own.values())
        }
        self._own = {path: others[told] for path, told in own.items()}
        for program, home in tree.image.tree.frozen.items():
            around = with_loader_variables(environment, own[program]) if program in own else environment
            self._own[program] = Systems(tree, with_directory(around, home), injection, levels)
        self._refusals: dict[str, str | None] = {}
        self._programs: dict[str, Process] = {}
        self._companies: dict[_Asked, _Company] = {}
        self._alternatives: dict[tuple[str, Abi], tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def refusal(self, interpreter: str) -> str | None:
        """What the kernel says of the dynamic loader that a program asks for; empty where there is none."""
        if interpreter not in self._refusals:
            found = self.tree.file(interpreter)
            closed = any(record.path == found and not record.executable for record in self.tree.image.files)
            self._refusals[interpreter] = "permission denied" if closed else None if found else ""
        return self._refusals[interpreter]

    def system(self, path: str) -> System:
        return self._own.get(path, self._systems).of(path, self.tree.linkage[path])

    def program(self, path: str) -> Process:
        """The process of a program in which others are opened: made once."""
        if path not in self._programs:
            self._programs[path] = Process(self.system(path), path)
        return self._programs[path]

    def place(self, path: str, within: str) -> tuple[System, Process | None]:
        """The loader of the file at `path`, and the process of the program `within` where that can open it."""
        system = self.system(path)
        if not within or self.system(within).abi != system.abi:
            return system, None
        opener = self.program(within)
        return opener.system, opener

    def company(self, path: str, within: str) -> _Company:
        """What the file at `path` loads, opened by the program `within` where that is given and can open it."""
        system, opener = self.place(path, within)
        asked, soname = _asked(system, opener, path), self.tree.linkage[path].soname
        known = self._companies.get(asked) if asked else None
        if known is not None and not known.mentions(path, soname):
            return known
        made = _Company(Process(system, path, within=opener))
        if asked and not made.mentions(path, soname):
            self._companies.setdefault(asked, made)
        return made

    def alternatives(self, name: str, abi: Abi) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The files of a name: those for an ABI, and those for others."""
        key = name, abi
        if key not in self._alternatives:
            named = dict.fromkeys(self.tree.by_name.get(name, ()))
            fits = {path: self.system(path).abi == abi for path in named}
            self._alternatives[key] = tuple(p for p in named if fits[p]), tuple(p for p in named if not fits[p])
        return self._alternatives[key]


_Asked = tuple[System, Process | None, tuple[str, ...], tuple[str, ...], tuple[str, ...], bool]


def _asked(system: System, within: Process | None, path: str) -> _Asked | None:
    """What decides what the file at `path` loads; None where its own name or place has a say in it."""
    linkage = system.tree.linkage[path]
    if linkage.rpath or linkage.runpath or path == system.real:
        return None
    if not all(need.library in linkage.needed for need in linkage.verneed):
        return None
    if "$" in " ".join(linkage.needed + linkage.filters + linkage.auxiliary + system.preload):
        return None
    return system, within, linkage.needed, linkage.filters, linkage.auxiliary, "nodeflib" in linkage.flags


def _changed_files(tree: Tree, names: frozenset[str]) -> set[str]:
    """Files that ask for one of `names`, and those that lie where a file of the host now lies."""
    asking = {
        path
        for path, linkage in tree.linkage.items()
        if not (
            names.isdisjoint(linkage.needed)
            and names.isdisjoint(linkage.filters)
            and names.isdisjoint(linkage.auxiliary)
        )
    }
    return asking.union(tree.host)


def _run_all(view: _View, roots: Roots, environment: Environment) -> list[Outcome]:
    """Programs first, then Python's modules, then every library that none of these has loaded."""
    outcomes = [_run(view, start) for start in _programs(view.tree, roots, environment)]
    covered = {path for outcome in outcomes for path in outcome.loaded}
    _run_others(view, _frozen(view.tree, tuple(outcomes)), outcomes, covered)
    _run_others(view, _modules(view, roots, covered), outcomes, covered)
    outcomes += _run_mentioned(view, roots, outcomes)
    covered.update(path for outcome in outcomes for path in outcome.loaded)
    _run_others(view, _libraries(view, roots, covered), outcomes, covered)
    return outcomes


def _run_others(view: _View, starts: Iterable[Start], outcomes: list[Outcome], covered: set[str]) -> None:
    """Of `starts` those that nothing has loaded, added to `outcomes` and with what they load to `covered`."""
    for start in starts:
        if start.path not in covered:
            outcome = _run(view, start)
            outcomes.append(outcome)
            covered.update(outcome.loaded)


def _run_mentioned(view: _View, roots: Roots, outcomes: list[Outcome]) -> list[Outcome]:
    """Libraries whose names stand in what runs, so that it may open them, and in these; `outcomes` are those so far."""
    mentions, found = view.tree.image.tree.mentions, list[Outcome]()
    if roots.everything:
        return found
    known = {path for outcome in outcomes if outcome.start.reach != "unreached" for path in outcome.loaded}
    running = [outcome for outcome in outcomes if outcome.start.reach in RUNS]
    interpreters = openers(roots.entries)
    pending = [(path, opener(path, interpreters) or _command(view.tree, roots)) for path in roots.named]
    pending += [(path, _program_of(outcome)) for outcome in running for path in _named_by(outcome, mentions)]
    for path, within in pending:
        if path not in known and path in view.tree.linkage:
            context: Opener = "entry" if _is_program(view.tree, path) else "library"
            outcome = _run(view, Start(path, context, "path", "" if context == "entry" else within))
            found.append(outcome)
            known.update(outcome.loaded)
            pending += [(each, within) for each in _named_by(outcome, mentions)]
    return found


def _named_by(outcome: Outcome, mentions: dict[str, tuple[str, ...]]) -> Iterator[str]:
    return (target for path in outcome.loaded for target in mentions.get(path, ()))


def _program_of(outcome: Outcome) -> str:
    """The program in which something is opened."""
    return outcome.start.path if outcome.start.context == "entry" else outcome.start.within


def _programs(tree: Tree, roots: Roots, environment: Environment) -> Iterator[Start]:
    """Every program, those of the command first; a library among the entries is one that something opens."""
    steered = set(roots.steered)
    for path in roots.entries:
        context: Opener = "helper" if path in steered else "entry"
        reach: Reach = "path" if path in roots.perhaps else "entry"
        # One that is named is started, whatever soname it has.
        started = _is_program(tree, path) or tree.linkage[path].interpreter
        yield Start(path, context if started else "library", reach)
    in_path = {tree.canonical(directory) for directory in environment.path}
    linked = {target for directory in in_path for target in tree.table(directory).values()}
    entries = set(roots.entries)
    for path in tree.linkage:
        if path not in entries and _is_program(tree, path):
            context = "entry" if path in linked else "helper"
            yield Start(path, context, "path" if path in linked and not roots.everything else roots.elsewhere)


def _is_program(tree: Tree, path: str) -> bool:
    """libc.so.6 and others that merely can be run carry an interpreter, too: they have a soname."""
    linkage = tree.linkage[path]
    return linkage.type == "executable" and not linkage.soname


def _frozen(tree: Tree, programs: Iterable[Outcome]) -> Iterator[Start]:
    """Libraries of programs that PyInstaller made: that of Python, without which none runs, modules, and the others."""
    for start in (program.start for program in programs if program.company):
        libraries = tree.frozen_with(start.path)
        pythons = [path for path in libraries if posixpath.basename(path).startswith(_LIBPYTHON)]
        for path in pythons:
            yield Start(path, "frozen" if start.context == "entry" else "helper", start.reach, start.path)
        reach: Reach = "path" if start.reach in RUNS else start.reach  # not every run imports all
        for path in sorted(libraries, key=lambda path: not tree.linkage[path].python_module):
            yield Start(path, "library", reach, start.path)


def _modules(view: _View, roots: Roots, covered: set[str]) -> Iterator[Start]:
    """Python extension modules in their interpreter, and the other libraries of its packages behind them."""
    pythons = _pythons(view.tree, roots)
    imports = roots.reach_of_imports
    named = {path for path, reach in imports.items() if reach == "import"}
    # First: what these load by themselves is covered by them, not by what nothing names.
    for paths in (named, view.tree.linkage.keys() - named):
        for path in filter(paths.__contains__, view.tree.linkage):
            linkage = view.tree.linkage[path]
            own = linkage.python_module and (IN_ARCHIVE not in path or path in imports)
            if own and linkage.type == "shared" and path not in covered:
                yield Start(path, "module", imports.get(path, roots.elsewhere), _python_of(path, pythons))
        for path in filter(paths.__contains__, imports):
            if not view.tree.linkage[path].python_module and path not in covered:
                yield Start(path, "library", imports[path], "" if path.endswith(ADDON) else _python_of(path, pythons))


def _pythons(tree: Tree, roots: Roots) -> list[str]:
    """Interpreters of Python, those of the command first."""
    pythons = [path for path in tree.linkage if _is_python(path) and _is_program(tree, path)]
    return sorted(pythons, key=lambda path: path not in roots.entries)


def _python_of(module: str, pythons: list[str]) -> str:
    """The interpreter for a module: of its version, and of its prefix where several are."""
    from imgcheck.loader.python import python_fits

    fitting = [path for path in pythons if python_fits(posixpath.basename(path).removeprefix(_PYTHON), module)]
    near = [path for path in fitting if module.startswith(posixpath.dirname(posixpath.dirname(path)) + "/")]
    return next(iter(near or fitting), "")


def _libraries(view: _View, roots: Roots, covered: set[str]) -> Iterator[Start]:
    """Libraries that nothing loaded so far: first those that no other names, since they load the rest.

    Of those in archives Java alone takes any out, which fit it: others are for other systems.
    """
    left = [path for path in view.tree.linkage if path not in covered and IN_ARCHIVE not in path]
    named = {name for path in left for name in view.tree.linkage[path].needed}
    inner = {p: None for p in left if view.tree.linkage[p].soname in named or p.rpartition("/")[2] in named}
    imports = {} if roots.everything else roots.reach_of_imports
    for path in (*(p for p in left if p not in inner), *inner):
        yield Start(path, "library", imports.get(path, roots.elsewhere))


def _command(tree: Tree, roots: Roots) -> str:
    """The program of the command that opens libraries, a Python before what starts it; "" where none is known."""
    programs = [path for path in roots.entries if _is_program(tree, path)]
    return next(filter(_is_python, programs), next(iter(programs), ""))


def _is_python(path: str) -> bool:
    return posixpath.basename(path).startswith(_PYTHON)


def _injected_starts(tree: Tree, roots: Roots) -> Iterator[Start]:
    """The driver's libraries that programs open by name, in the process of the command where it is known."""
    program = _command(tree, roots)
    for path, library in tree.host.items():
        if library.soname.startswith(_OPENED_BY_NAME):
            yield Start(path, "library", "entry", program)


def _run(view: _View, start: Start) -> Outcome:
    tree = view.tree
    interpreter = tree.linkage[start.path].interpreter
    by_kernel = start.context in ("entry", "helper") and start.path not in view.steered
    refusal = view.refusal(interpreter) if by_kernel and interpreter else None
    if refusal is not None:
        problem = Problem(
            "interpreter", start.path, interpreter, root=start.path, context=start.context, complaint=refusal
        )
        return Outcome(start, None, (problem,))
    company = view.company(start.path, start.within)
    absent = company.process.absent_versions(tree.linkage[start.path])
    lacking = company.lacking(start.path)
    if not (absent or company.absent or company.process.misses or lacking):
        return Outcome(start, company.told, ())
    absent_everywhere = [*((start.path, *each) for each in absent), *company.absent]
    problems = [*_problems(view, start, company.process, absent_everywhere), *_symbol_problems(start, company, lacking)]
    return Outcome(start, company.told, tuple(problems))


def _problems(view: _View, start: Start, process: Process, absent: Iterable[_Absent]) -> Iterator[Problem]:
    host = view.tree.host
    for miss in process.misses:
        path = start.path if miss.object is process.main else miss.object.real
        yield Problem(
            "library",
            path,
            miss.name,
            injected=path in host,
            searched=miss.object.plan.searched,
            root=start.path,
            context=start.context,
            refused=miss.refused.opened,
            complaint=miss.refused.complaint,
        )
    for path, name, provider, version in absent:
        yield Problem(
            "version",
            path,
            name,
            version,
            provider.opened,
            injected=path in host or provider.real in host,
            root=start.path,
            context=start.context,
        )


def _symbol_problems(start: Start, company: _Company, lacking: Iterable[_Lack]) -> Iterator[Problem]:
    """Symbols that nothing defines in the process of `start`.

    Of what is opened at run time it is not told where the image has them in a file that something else may have loaded
    (RTLD_GLOBAL), unless another of its name has been loaded in its place; nor of what Python opens where the image has
    none. What is sought by the first call of it only counts where that is not put off: by musl, which binds all at
    once, and by Python, which opens everything so (RTLD_NOW in Python/dynload_shlib.c and Modules/_ctypes/callproc.c);
    else for programs, which at least do run.
    """
    started = start.context in ("entry", "helper")
    by_python = _is_python(start.within)
    if not (started or by_python) and (start.context == "module" or in_python_packages([start.path])):
        return
    at_once = by_python or (started and company.process.system.kind == "musl")
    kinds: dict[tuple[_Kind, str, tuple[str, ...]], list[_Lack]] = {}
    for lack in lacking:
        kind: _Kind = "symbol" if lack.what.at_load or at_once else "call"
        kinds.setdefault((kind, lack.path, lack.what.providers), []).append(lack)
    for (kind, path, providers), lacks in kinds.items():
        namesake = company.namesake(providers)
        if started or (kind == "symbol" and (namesake or not providers)):
            yield Problem(
                kind,
                path,
                lacks[0].what.symbol,
                provider=namesake.opened if namesake else "",
                more=sum(lack.what.count for lack in lacks) - 1,
                root=start.path,
                context=start.context,
                elsewhere=providers,
            )


def _closure(view: _View, outcomes: list[Outcome], roots: Roots) -> Closure:
    outcomes = sorted(outcomes, key=_rank)
    reaches, chosen = _reached(outcomes), _chosen(outcomes)
    if roots.everything:
        # Of what is packed some is taken out, if that starts at all.
        for path in (record.path for record in view.tree.image.files):
            reaches[path] = reaches.get(path, "path") if IN_ARCHIVE in path else "entry"
    elif roots.in_part:
        reaches = {record.path: roots.elsewhere for record in view.tree.image.files} | reaches
    for path in _mentioned_data(view.tree, roots, reaches):
        reaches[path] = min("path", reaches.get(path, "unreached"), key=REACHES.index)
    problems, contextual = _sorted_out(view, outcomes, chosen)
    for opened in _opened_by_frameworks(view, roots):
        reach = reaches.get(opened.opener, "unreached")
        for path in opened.loaded:
            reaches[path] = min(reach, reaches.get(path, "unreached"), key=REACHES.index)
        problems += tuple(_with_alternatives(view, problem) for problem in opened.problems)
        chosen |= opened.chosen
    return Closure(
        reaches=reaches,
        problems=problems,
        contextual=contextual,
        chosen=chosen,
        opens=_opens(view, roots),
        injected=frozenset(view.tree.host),
        assumed=view.injection is not None and view.injection.assumed,
        loaded={outcome.start.path: outcome.loaded for outcome in reversed(outcomes)},
        libcs=_libcs(view.tree, outcomes),
    )


def _mentioned_data(tree: Tree, roots: Roots, reaches: dict[str, Reach]) -> list[str]:
    """Files of GPU code whose names stand in what runs."""
    mentions = tree.image.tree.mentions.items()
    targets = [each for path, found in mentions if reaches.get(path) in RUNS for each in found]
    return [path for path in (*roots.named, *targets) if path not in tree.linkage]


def _libcs(tree: Tree, outcomes: Iterable[Outcome]) -> frozenset[str]:
    """The C libraries of what may run, and not of sysroots and other trees in the image that nothing enters.

    All of them where none of them runs.
    """
    every = frozenset(path for path, linkage in tree.linkage.items() if is_libc(linkage))
    running = (o for o in outcomes if o.start.reach != "unreached" and o.start.context != "library")
    return every.intersection(path for outcome in running for path in outcome.loaded) or every


def _opened_by_frameworks(view: _View, roots: Roots) -> Iterator[Opened]:
    """What the image's frameworks open by themselves: modules in a Python that takes them, others in the command.

    The opener of a module may be the interpreter, whose RPATH is searched for both (conda's leads to its libraries).
    """
    program, pythons = _command(view.tree, roots), _pythons(view.tree, roots)
    for component in view.tree.image.components:
        if component.opens and component.opener in view.tree.linkage:
            is_module = view.tree.linkage[component.opener].python_module
            python = _python_of(component.opener, pythons) if is_module else ""
            system, within = view.place(component.opener, python or program)
            opener = Process(system, component.opener, within=within)
            yield open_libraries(component, opener, frozenset(view.tree.host))


def _reached(outcomes: list[Outcome]) -> dict[str, Reach]:
    """How each file is reached: as by the first of `outcomes` that loads it."""
    reaches: dict[str, Reach] = {}
    told: set[Company | None] = {None}
    for outcome in outcomes:
        files = (outcome.start.path,) if outcome.company in told else outcome.loaded
        told.add(outcome.company)
        for path in files:
            reaches.setdefault(path, outcome.start.reach)
    return reaches


def _chosen(outcomes: list[Outcome]) -> dict[tuple[str, str], str]:
    begun = [(outcome.start.path, outcome.company) for outcome in outcomes if outcome.company]
    best = {company: path for path, company in reversed(begun)}
    chosen: dict[tuple[str, str], str] = {}
    # What the best reached ones chose comes first, and what is added last stays.
    for path, company in reversed(begun):
        if best.get(company) == path:
            chosen |= company.chosen
        for name, found in company.found:
            chosen[path, name] = found
    return chosen


def _rank(outcome: Outcome) -> tuple[int, int]:
    return REACHES.index(outcome.start.reach), _CONTEXTS.index(outcome.start.context)


def _sorted_out(
    view: _View, outcomes: Iterable[Outcome], chosen: dict[tuple[str, str], str]
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Each problem once, where it is reached best; apart from them those that the context may well settle.

    A file that is opened at run time finds what its opener has loaded before: a library that it misses by itself, yet
    that another context gives it or that lies elsewhere in the image, is no failure that can be foreseen.
    """
    kept: dict[tuple[str, ...], Problem] = {}
    settled: dict[tuple[str, ...], Problem] = {}
    for outcome in outcomes:
        for problem in outcome.problems:
            key = (problem.kind, problem.path, problem.needed, problem.version, problem.provider)
            if key in kept:
                continue
            problem = _with_alternatives(view, problem)
            may_be_loaded = _may_be_loaded(problem) or (problem.path, problem.needed) in chosen
            opened = problem.context not in ("entry", "frozen")
            if problem.kind == "library" and opened and may_be_loaded and not problem.injected:
                settled.setdefault(key, problem)
            else:
                kept[key] = problem
    return tuple(kept.values()), tuple(problem for key, problem in settled.items() if key not in kept)


def _may_be_loaded(problem: Problem) -> bool:
    """Whether what opens `problem.root` may have loaded the library before, from where the image has it.

    Python packages preload libraries of other packages (nvidia/*/lib, *.libs), never those of the system: a module
    that misses /usr/local/cuda/lib64/libcublas.so does miss it.
    """
    if problem.context == "module":
        return in_python_packages(problem.elsewhere) and not _is_of_own_wheel(problem)
    return bool(problem.elsewhere)


def _is_of_own_wheel(problem: Problem) -> bool:
    """Whether auditwheel put the library beside the package: it adds hashes to names, and has `.libs` searched."""
    return bool(_REPAIRED.search(problem.needed)) and any(place.endswith(".libs") for place in problem.searched)


def _with_alternatives(view: _View, problem: Problem) -> Problem:
    """`problem` with the files of the same name: those that would serve, and those of another class or machine."""
    if problem.kind not in ("library", "opened"):
        return problem
    abi, names = view.system(problem.path).abi, problem.needed.split(ONE_OF)
    alternatives = [view.alternatives(posixpath.basename(name), abi) for name in names]
    fitting, others = (tuple(chain.from_iterable(files)) for files in zip(*alternatives, strict=True))
    sought = {view.tree.canonical(directory) for directory in problem.searched} if others else ()
    return problem.with_files(fitting, tuple(path for path in others if posixpath.dirname(path) in sought))


def _stand_in(tree: Tree) -> list[str]:
    """Some program of the image; without any, as in an unpacked wheel, a library that asks for the driver, or any."""
    own = [path for path in tree.linkage if path not in tree.host]
    asking = (path for path in own if tree.linkage[path].driver_functions or LIBCUDA in tree.linkage[path].needed)
    return [path for path in own if _is_program(tree, path)][:1] or [*asking][:1] or own[:1]


def _opens(view: _View, roots: Roots) -> dict[str, str]:
    """What the driver's sonames lead to for a program of the command, or else for what may stand in for one."""
    names = {n for n in view.tree.by_name if n.startswith(_OPENED_BY_NAME) and ".so" in n}
    programs = [path for path in roots.entries if _is_program(view.tree, path)]
    if roots.environments:  # scripts end with the program that they are for: what their shell finds does not count
        programs = programs[-1:]
    programs = programs or _stand_in(view.tree)
    found: dict[str, str] = {}
    for path in programs:
        process = view.program(path)
        for name in sorted(names):
            loaded = process.loaded(name)
            there = loaded or process.system.find(name, process.main.plan)
            if there is not None and not isinstance(there, Refused):
                found.setdefault(name, there.real)
    return found
