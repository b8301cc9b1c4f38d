"""Files that ask for the same share what they load, and nobody can tell: each gets what it would get by itself."""

import pytest
from hypothesis import given, settings

from imgcheck.documents.facts import CodeFacts, Linkage
from imgcheck.documents.image import FileRecord, ImageConfig, ImageProfile, Platform, TreeIndex
from imgcheck.loader import model
from imgcheck.loader.closure import Closure
from imgcheck.loader.model import Loader
from tests.loader.random_images import images


def _told(closure: Closure) -> tuple[object, ...]:
    """All of a closure, with the order of what is kept in order; of `chosen` none is asked for."""
    tables = (closure.reaches, closure.opens, closure.loaded)
    kept = closure.problems, closure.contextual, *(list(table.items()) for table in tables)
    return *kept, closure.chosen, closure.libcs


@settings(max_examples=400, deadline=None)
@given(images())
def test_each_file_loads_what_it_would_load_by_itself(image: ImageProfile) -> None:
    shared = _told(Loader(image).close())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "_asked", lambda *_: None)
        assert _told(Loader(image).close()) == shared


def test_a_preloaded_program_shares_nothing() -> None:
    """It is in every other process, and its own does not show that it was asked for."""
    linkage = Linkage(elf_class=64, machine="x86_64", type="executable")
    paths = ("/bin/one", "/bin/two", "/lib64/ld-linux-x86-64.so.2")
    image = ImageProfile(
        schema_version="1.0",
        reference="test",
        platform=Platform("linux", "amd64"),
        config=ImageConfig(),
        layers=(),
        files=tuple(FileRecord(path, path, 0, executable=True) for path in paths),
        objects={path: CodeFacts(1, linkage) for path in paths},
        tree=TreeIndex(ld_so_preload=("/bin/one",)),
    )
    assert "/bin/one" in Loader(image).close().loaded["/bin/two"]
