"""Small random images in which files find, miss and share libraries in all the ways that the loader knows."""

from hypothesis import strategies as st

from imgcheck.documents.facts import CodeFacts, Linkage, Verneed
from imgcheck.documents.host import HostLibrary
from imgcheck.documents.image import FileRecord, ImageConfig, ImageProfile, Platform, TreeIndex
from imgcheck.loader.injection import Injection

_INTERPRETER = "/lib64/ld-linux-x86-64.so.2"
_MUSL = "/lib/ld-musl-x86_64.so.1"
_PATHS = ("/bin/one", "/bin/two", "/lib64/liba.so", "/lib64/libb.so", "/lib64/glibc-hwcaps/x86-64-v3/liba.so",
          "/opt/liba.so", "/opt/libc.so", "/opt/plugin", _INTERPRETER, _MUSL)  # fmt: skip
_NAMES = ("liba.so", "libb.so", "libc.so", "gone.so", "libcuda.so.1", "plugin", "/opt/plugin", "/bin/one",
          "$ORIGIN/liba.so")  # fmt: skip
_DIRECTORIES = ("/opt", "$ORIGIN", "/lib64", "$ORIGIN/../opt")


def _names(most: int) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(_NAMES), max_size=most).map(tuple)


def _mostly_empty(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(st.just(()), st.just(()), strategy)


_DIRS = st.lists(st.sampled_from(_DIRECTORIES), max_size=2).map(tuple)
_VERNEED = st.builds(Verneed, library=st.sampled_from(_NAMES), versions=st.sampled_from([("V1",), ("V1", "V2")]))
_LINKAGE = st.builds(
    Linkage,
    elf_class=st.just(64),
    machine=st.just("x86_64"),
    type=st.sampled_from(["executable", "shared"]),
    interpreter=st.sampled_from(["", _INTERPRETER, _INTERPRETER, _MUSL]),
    soname=st.sampled_from(["", "", "", "liba.so", "libb.so", "/opt/plugin"]),
    needed=_names(3),
    rpath=_mostly_empty(_DIRS),
    runpath=_mostly_empty(_DIRS),
    filters=_mostly_empty(_names(1)),
    auxiliary=_mostly_empty(_names(1)),
    flags=st.sampled_from([(), (), ("nodeflib",)]),
    verneed=st.lists(_VERNEED, max_size=2).map(tuple),
    verdef=st.sampled_from([(), ("V1",), ("V1", "V2")]),
    python_module=st.booleans(),
)


INJECTIONS = st.builds(
    Injection,
    directory=st.sampled_from(["/opt", "/lib64", "/injected"]),
    libraries=st.lists(
        st.builds(
            HostLibrary,
            path=st.sampled_from(["/usr/lib64/liba.so", "/usr/lib64/libcuda.so.1", "/usr/lib64/gone.so"]),
            soname=st.sampled_from(["liba.so", "libb.so", "libcuda.so.1", "gone.so"]),
            machine=st.just("x86_64"),
            needed=_names(2),
            verneed=st.lists(_VERNEED, max_size=1).map(tuple),
            verdef=st.sampled_from([(), ("V1",)]),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    order=st.sampled_from(
        ["ld-library-path-first", "ld-library-path-last", "image-first", "default-directory", "ld-so-conf-first"]
    ),
    ldconfig=st.booleans(),
)
"""What runtimes of every order place in an image, sonames of its own among them."""


@st.composite
def images(draw: st.DrawFn) -> ImageProfile:
    """Programs and libraries of one or two loaders."""
    linkages = {path: draw(_LINKAGE) for path in draw(st.sets(st.sampled_from(_PATHS), min_size=2))}
    environment = draw(st.sampled_from([(), ("LD_LIBRARY_PATH=/opt",), ("LD_PRELOAD=liba.so",)]))
    return ImageProfile(
        schema_version="1.0",
        reference="test",
        platform=Platform(),
        config=ImageConfig(environment=environment, command=draw(st.sampled_from([(), ("/bin/one",)]))),
        layers=(),
        files=tuple(FileRecord(path=path, object=path, layer=0, executable=True) for path in sorted(linkages)),
        objects={path: CodeFacts(size=1, linkage=linkage) for path, linkage in linkages.items()},
        tree=TreeIndex(ld_so_preload=draw(_mostly_empty(_names(1)))),
    )
