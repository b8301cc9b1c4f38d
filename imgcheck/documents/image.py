r"""ImageProfile: what an image needs, with the layer that brought each need.

Every string is valid Unicode: bytes of names that are no UTF-8 are written as `\xNN`, in paths and in what ELF files
name alike, so that both still match.
"""

from typing import TYPE_CHECKING, Literal, get_args

from msgspec import structs

from imgcheck.documents.facts import CodeFacts, Document

if TYPE_CHECKING:
    from imgcheck.documents.shell_commands import ShellCommand

SCHEMA_VERSION = "1.0"

Reach = Literal["entry", "import", "path", "unreached"]
REACHES: tuple[Reach, ...] = get_args(Reach)
"""From best to worst."""
RUNS: frozenset[str] = frozenset(REACHES[:2])
"""Those of what is executed, or loaded by what is: a failure there is one of the command."""
Opener = Literal["entry", "module", "helper", "library", "frozen"]
IN_ARCHIVE = "!/"
"""Between the path of an archive and one in it, as in Java's URLs (`jar:file:/app/app.jar!/linux/libx.so`)."""
JAVA_ARCHIVES = (".jar", ".war", ".ear")
"""Ends of the names of Java's archives, which may bring libraries for several systems."""


class Platform(Document, frozen=True):
    os: str = "linux"
    architecture: str = "amd64"
    """GOARCH name, as OCI uses it: amd64, arm64, ppc64le, 386."""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


class ImageConfig(Document, frozen=True):
    """The part of an OCI image config that decides what runs."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """KEY=VALUE as in the config, in order."""
    working_directory: str = ""
    user: str = ""
    labels: dict[str, str] = {}

    @property
    def variables(self) -> dict[str, str]:
        """The environment by name; of a name that stands twice the last, as runtimes take it."""
        return dict(line.partition("=")[::2] for line in self.environment)


class LayerInfo(Document, frozen=True):
    """One layer; `files` of the profile refer to it by its index."""

    diff_id: str = ""
    digest: str = ""
    """Digest of the blob as stored or sent; empty where there is none (dir:, docker-archive:)."""
    size: int = 0
    """Bytes of the blob."""
    history: str = ""
    """`created_by` of the config's history entry that made it."""


class FileRecord(Document, frozen=True):
    """A file of the merged tree whose bytes were analysed."""

    path: str
    """Canonical absolute path in the merged tree; of a library in a Java archive, or in a program that unpacks
    it, that of the archive or program, IN_ARCHIVE, and the library's there: `/app/app.jar!/linux/libx.so`."""
    object: str
    """The key into `objects`: SHA-256 of its bytes. Where packed GPU code was left out that no engine reads, SHA-256
    over that of the other bytes and over offset and size (`<QQ`) of each gap."""
    layer: int
    executable: bool = False


class Script(Document, frozen=True):
    """A text file that something may execute: what its first line asks for, and the commands of a shell's script."""

    path: str
    interpreter: tuple[str, ...]
    """What the `#!` line names, and its one argument; empty where a shell's script begins without it."""
    packed: str
    """The commands of a shell's script (imgcheck.documents.shell_commands)."""
    executable: bool = True
    asks_cpu: bool = False
    """A shell's script that looks at what the CPU has."""

    @property
    def commands(self) -> "tuple[ShellCommand, ...]":
        """Raises DocumentError where they are damaged."""
        from imgcheck.documents.shell_commands import unpacked

        return unpacked(self.packed)


class Service(Document, frozen=True, array_like=True):
    """A command that a configuration names, its words as templates (imgcheck.loader.shell)."""

    words: tuple[str, ...]
    directory: str = ""
    """Where it starts, as a template; empty for the directory of what starts it."""
    environment: tuple[str, ...] = ()
    """`NAME=TEMPLATE`."""
    certain: bool = True
    """What reads the configuration starts it without being asked to."""


class Services(Document, frozen=True):
    """A configuration of a supervisor (rules/analysis/supervisors.toml)."""

    path: str
    services: tuple[Service, ...] = ()
    includes: tuple[str, ...] = ()
    """Patterns of the paths of others that it includes, as templates."""


Hindrance = Literal[
    "absent", "not-executable", "no-format", "no-interpreter", "interpreter-not-executable", "carriage-return",
    "unknown-option",
]  # fmt: skip


class Unstartable(Document, frozen=True):
    """A program of the command that does not start."""

    word: str
    """As the command names it, or a script or launcher of it."""
    reason: Hindrance
    path: str = ""
    """The file in the image, where there is one."""
    interpreter: str = ""
    """What its first line asks for."""
    by: str = ""
    """The script or launcher that starts it; empty where the container's runtime does."""
    searched: tuple[str, ...] = ()
    """The directories in which PATH would have it, where none has, links resolved."""


class PythonCode(Document, frozen=True):
    """What a Python text imports, or all those of a package, which are told together."""

    path: str
    """The file, or the outermost directory above it with an `__init__.py`."""
    imports: tuple[str, ...] = ()
    """Top-level modules that its import statements name, of those that the image may have, or modules of packages
    that have a record of their own (PythonModule). Of a package the statements of those modules of it that are imported
    with it."""
    perhaps: tuple[str, ...] = ()
    """The same of those that its functions, its other modules, or branches of it, may come to import, and of those that
    an application's own text names in quotes."""
    anything: bool = False
    """An application's own text that imports by names which it works out, or runs other code."""
    plugins: bool = False
    """It asks for the plug-ins that packages offer (entry points)."""
    mentions: tuple[str, ...] = ()
    """Files of libraries and GPU code that its strings name, of an application's own text."""
    later: tuple[str, ...] = ()
    """Compiled modules of a package that are not imported with it: only others of its texts name them, or none does.
    `sub/_core` for /usr/lib/python3/dist-packages/PACKAGE/sub/_core.so."""
    guarded: tuple[str, ...] = ()
    """Compiled modules that are imported with it, and without which it goes on (`try`), written in the same way."""


class PythonModule(Document, frozen=True):
    """A module of a package that texts outside of it import by its name, and what it brings besides the package."""

    package: str
    """The `path` of the package's PythonCode."""
    name: str
    """PACKAGE.SUB.MODULE."""
    imports: tuple[str, ...] = ()
    """As those of PythonCode, but for what the package imports itself."""
    compiled: tuple[str, ...] = ()
    """Those of the package's `later` that are imported with it."""


class CacheEntry(Document, frozen=True):
    """One line of the image's /etc/ld.so.cache."""

    soname: str
    path: str
    flags: int = 0
    hwcap: int = 0


CXX = "_Z"
"""What the names of C++ begin with (Itanium C++ ABI, 5.1.2)."""


class Undefined(Document, frozen=True, array_like=True):
    """Symbols that a file asks for, all of C++ or none, and that it may not get: what it is sure to load lacks some."""

    symbol: str
    """The first of them in the order of the relocations."""
    count: int = 1
    at_load: bool = True
    """The loader seeks them with the file; others when they are called first, or where it is told to bind at once."""
    providers: tuple[str, ...] = ()
    """Files of the image that have them, as far as these can be read; none where nothing has."""


class TreeIndex(Document, frozen=True):
    """What the loader's model needs of the tree besides the ELF files."""

    symlinks: dict[str, str] = {}
    """Absolute link path to its target as stored; only links through which a recorded file is reached."""
    ld_so_conf: tuple[str, ...] = ()
    """Directories of /etc/ld.so.conf and its includes, in order."""
    ld_so_cache: tuple[CacheEntry, ...] = ()
    ld_so_preload: tuple[str, ...] = ()
    musl_paths: dict[str, tuple[str, ...]] = {}
    """Directories of each /etc/ld-musl-ARCH.path, by that path; they replace musl's own."""
    scripts: tuple[Script, ...] = ()
    services: tuple[Services, ...] = ()
    held: tuple[str, ...] = ()
    """Those of `scripts` and `services` that belong to a service which is not started by itself: a file `down` lies
    beside them, or no bundle that is started has it (s6-rc)."""
    python_paths: tuple[str, ...] = ()
    """site-packages and dist-packages directories, and those that their path configuration files (`.pth`) name."""
    python_requires: dict[str, tuple[str, ...]] = {}
    """Top-level modules to those that their package requires, by its record (METADATA); by "" those of packages of
    whose modules no name is told."""
    python_plugins: tuple[str, ...] = ()
    """Top-level modules that packages offer as plug-ins (entry_points.txt), scripts left out."""
    python_code: tuple[PythonCode, ...] = ()
    """Python texts but for those of Python's own library; of tests of packages nothing is told."""
    python_modules: tuple[PythonModule, ...] = ()
    """Modules of packages that are told apart."""
    directories: tuple[str, ...] = ()
    """Directories whose presence a runtime asks for (/usr/lib64, WORKDIR, ...)."""
    files: tuple[str, ...] = ()
    """Non-ELF files whose presence decides something (/etc/passwd, what a command names, what lies in PATH, ...)."""
    looked_for: tuple[str, ...] = ()
    """Paths, and globs of names in a directory, of which `directories`, `files` and `symlinks` have what is there: of
    another path, that it stands in none of them says nothing."""
    mentions: dict[str, tuple[str, ...]] = {}
    """Programs, libraries and an application's own Python texts to the files with code of the image that their strings
    name: what they may open by themselves."""
    undefined: dict[str, tuple[Undefined, ...]] | None = None
    """Files to the symbols that they may not get; None where nobody has looked."""
    unloadable: dict[str, str] = {}
    """Files named as libraries are (`.so`, `.so.1`) that are no ELF files, with what the loader says of each."""
    closed: tuple[str, ...] = ()
    """Directories above programs, scripts and libraries that others than owner and group may not enter, and those of
    these files that others may neither read nor execute."""
    frozen: dict[str, str] = {}
    """Programs that PyInstaller made, with the directory where the libraries of each lie: `PROGRAM!` where it unpacks
    them when it starts."""


ONE_OF = " or "
"""Between sonames of which one does, the first one first (Component.opens, Problem.needed)."""


class Component(Document, frozen=True):
    """A framework or library named in the summary: TensorFlow 1.12.0, CUDA 9.0, NCCL 2.3, Debian 12."""

    name: str
    version: str = ""
    path: str = ""
    minimum_capability: str = ""
    """Lowest compute capability that the framework accepts, "7.0"."""
    built_for: tuple[str, ...] = ()
    """Compute capabilities it was built for."""
    detail: str = ""
    opener: str = ""
    """The file that opens libraries by itself (dlopen) before the framework uses a GPU; empty where none is known."""
    opens: tuple[str, ...] = ()
    """What it opens these libraries by, a soname, several of which one does (with " or " between them), or a path from
    `$ORIGIN`: without one of them it uses no GPU."""
    seeks: tuple[str, ...] = ()
    """Directories in which it looks for them before it asks for them by name, from `$ORIGIN` or absolute."""
    cudnn: str = ""
    """Version of cuDNN that it was built with; empty where it does not ask, or that is not known."""

    @property
    def label(self) -> str:
        """As a summary names it: `TensorFlow 1.12.0 for 7.0`."""
        built = f" for {', '.join(self.built_for)}" if self.built_for else ""
        return f"{self.name} {self.version}".strip() + built


class Statement(Document, frozen=True):
    """One need of any host, derived from evidence alone: "GPU driver", "384.81 or newer", and why."""

    what: str
    needed: str
    because: tuple[str, ...] = ()


class Problem(Document, frozen=True):
    """Something ld.so would stop at."""

    kind: Literal["library", "version", "interpreter", "opened", "symbol", "call"]
    """`opened`: a library that Component.opens names, or one that such a library needs; `root` is the opener. `symbol`:
    one that nothing defines of what is loaded, and `call` the same where it is sought by the first call of it alone."""
    path: str
    """The file that needs it."""
    needed: str
    """Soname, interpreter path or symbol."""
    version: str = ""
    """Symbol version, for `version`."""
    provider: str = ""
    """The file that was chosen and lacks the version, as ld.so names it; or that lacks the symbol, which another of its
    name has."""
    more: int = 0
    """Further symbols of the file for which the same holds."""
    injected: bool = False
    """The file that needs it, or the provider, comes from the host."""
    searched: tuple[str, ...] = ()
    """Directories in the order in which they were sought; `ld.so.cache` stands for the cache."""
    root: str = ""
    """The program or library in whose start it happens; `path` itself or a file that loads it."""
    context: Opener = "entry"
    """What `root` is: a program that is called by name, a Python extension module, a program outside PATH (a wrapper
    may start it with variables of its own), a library that something opens by itself, or that of Python in a program
    that PyInstaller made, which does not run without."""
    elsewhere: tuple[str, ...] = ()
    """Files of the image that would serve, outside the directories that were sought, or that are not loaded."""
    skipped: tuple[str, ...] = ()
    """Files of the right name that the loader passed over: other class or machine."""
    refused: str = ""
    """The file, as ld.so names it, that it finds first and that is no library, so that it seeks no further."""
    complaint: str = ""
    """What it says of that: `file too short` or `invalid ELF header`; of an interpreter, the kernel's
    `permission denied` where it has no execute bit."""

    @property
    def of_symbol(self) -> bool:
        """Whether `needed` is a symbol."""
        return self.kind in ("symbol", "call")

    def with_files(self, elsewhere: tuple[str, ...], skipped: tuple[str, ...]) -> "Problem":
        return structs.replace(self, elsewhere=elsewhere, skipped=skipped)


class Outcomes(Document, frozen=True):
    """What each of `Loads.starts` loads, apart from the others: what is injected changes but some of them."""

    contexts: str = ""
    """For each of them the first letter of its context, as Problem.context has it."""
    reaches: str = ""
    """For each of them the first letter of its reach."""
    within: str = ""
    """For each of them the number of the program that opens it, or -1."""
    taken: str = ""
    """For each of them the number of its `choices` and its `found`; -1 where it does not load as it is."""
    chosen: str = ""
    """As Loads.chosen, with all that was chosen anywhere."""
    choices: tuple[str, ...] = ()
    """Numbers of those of `chosen` that what it loads asks for."""
    found: tuple[str, ...] = ()
    """Twofold: the number of a name that it asks for itself, and the file that it gets."""


class Loads(Document, frozen=True):
    """What the dynamic loader makes of the image's own command where nothing is injected, worked out beforehand.

    Packed, since there are thousands of answers: numbers of files count those of `ImageProfile.files`. It repeats what
    the facts say, and is not looked at by another version of the loader's model than `made_by`.
    """

    made_by: str = ""
    """Digest of the code that worked it out."""
    levels: tuple[str, ...] = ()
    """Kinds of CPUs for which it holds, each by the directories that their loader opens, separated by blanks."""
    entries: tuple[str, ...] = ()
    """ELF files that the command executes."""
    imports: tuple[str, ...] = ()
    """Libraries that a Python among them can load."""
    everything: bool = False
    """Every file counts as reached: no command is known."""
    in_part: bool = False
    """Of what the command's scripts start, a part is not known."""
    steered: tuple[str, ...] = ()
    """Those of `entries` that start with loader variables that are not the image's and cannot be told."""
    environments: dict[str, tuple[str, ...]] = {}
    """Those of `entries` that start with other loader variables than the image's: LD_LIBRARY_PATH and LD_PRELOAD."""
    perhaps: tuple[str, ...] = ()
    """Those of `entries` that a script starts on a condition, or without which it goes on, and those of `imports` of
    which no text that runs names the package."""
    always: tuple[str, ...] = ()
    """Those of `entries` that every run comes to, and ends with."""
    misfits: tuple[str, ...] = ()
    """Extension modules for other Pythons than those that run, of packages that a text which runs names and that have
    none for these."""
    named: tuple[str, ...] = ()
    """Files that texts which run name in their strings, or the command in its words, and that may be opened."""
    modules: tuple[str, ...] = ()
    """Top-level modules of Python that are certainly imported."""
    ways: dict[str, str] = {}
    """What starts each of the command's programs, scripts and launchers, and what imports each top-level module."""
    unstartable: tuple[Unstartable, ...] = ()
    """Programs of the command that do not start."""
    from_workdir: tuple[str, ...] = ()
    """Programs, scripts and modules of Python that are found from the directory alone in which the container starts."""
    closed: tuple[str, ...] = ()
    """Scripts that interpreters surely read, and that others than owner and group may not."""
    reaches: str = ""
    """One letter for each file: the first of its reach, or a dot."""
    companies: tuple[str, ...] = ()
    """Lists of files that are loaded along with one that begins."""
    starts: str = ""
    """Files that begin a process or are opened by themselves, each before the number of its company."""
    names: tuple[str, ...] = ()
    """Libraries by the names that are asked for."""
    chosen: str = ""
    """Threefold: a file, the number of a name that it asks for, and the file that it gets."""
    problems: tuple[Problem, ...] = ()
    contextual: tuple[Problem, ...] = ()
    """What a file misses by itself alone."""
    searches: tuple[tuple[str, ...], ...] = ()
    searched: str = ""
    """For each of `problems` and `contextual` the number of its `searches`, where `Problem.searched` has them."""
    opens: dict[str, str] = {}
    """Libraries that programs open by name, with the file that they get."""
    libcs: tuple[str, ...] = ()
    """C libraries that something loads."""
    outcomes: Outcomes = Outcomes()


class ImageProfile(Document, frozen=True, tag_field="kind", tag="image"):
    """What an image needs. `objects` are facts by content, `files` say where they lie."""

    schema_version: str
    reference: str
    platform: Platform
    config: ImageConfig
    layers: tuple[LayerInfo, ...]
    files: tuple[FileRecord, ...]
    objects: dict[str, CodeFacts]
    tree: TreeIndex
    manifest_digest: str = ""
    config_digest: str = ""
    file_identity: str = ""
    """Of an image in one file: what told it from others when the profile was made (preflight.belonging)."""
    components: tuple[Component, ...] = ()
    unreadable: dict[str, str] = {}
    """Paths that could not be read, with the cause."""
    minimum: tuple[Statement, ...] = ()
    """What it needs of a driver and of GPUs, by the rules of the imgcheck that wrote the document."""
    family: str = ""
    """The runtimes that its form is for, as a SIF is for Apptainer's; "" where any may take it."""
    engines: dict[str, str] = {}
    """Versions of the engines that made the facts: isa, gpu, linkage."""
    loads: tuple[Loads, ...] = ()
    """The loader's work, one for each set of CPUs on which it ends differently."""

    def unread_at(self, path: str) -> str:
        """What could not be read on the way to `path`: that, or a directory above it; "" where all could be."""
        while self.unreadable and path.strip("/"):
            if path in self.unreadable:
                return path
            path = path.rpartition("/")[0]
        return ""

    def facts(self, record: FileRecord) -> CodeFacts:
        return self.objects[record.object]
