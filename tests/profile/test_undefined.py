"""Symbols of all files of an image, where there are as many as only a hostile one has."""

import random
import time

from imgcheck.binaries.linkage.binding import hashes_of
from imgcheck.documents.facts import CodeFacts, Linkage, Symbols
from imgcheck.documents.image import FileRecord, ImageConfig, ImageProfile, LayerInfo, Platform, TreeIndex
from imgcheck.loader.tree import Tree
from imgcheck.profile.undefined import with_undefined


def image(files: dict[str, Symbols | None]) -> ImageProfile:
    """Libraries of these symbols that need nothing."""
    objects = {path: CodeFacts(1, Linkage(64, "x86_64", soname=path[1:]), symbols=each) for path, each in files.items()}
    records = tuple(FileRecord(path, path, 0) for path in files)
    return ImageProfile("1.0", "test", Platform(), ImageConfig(), (LayerInfo(),), records, objects, TreeIndex())


def symbols(defined: list[bytes], asked: list[bytes]) -> Symbols:
    return Symbols(hashes_of(defined).astype("<u4").tobytes(), b"".join(name + b"\0" for name in asked))


def finished(profile: ImageProfile) -> ImageProfile:
    return with_undefined(profile, Tree(profile))


def undefined(files: dict[str, Symbols | None]) -> dict[str, list[tuple[str, tuple[str, ...]]]] | None:
    found = finished(image(files)).tree.undefined
    return (
        found
        if found is None
        else {path: [(each.symbol, each.providers) for each in left] for path, left in found.items()}
    )


def test_symbols_are_told_with_who_has_them() -> None:
    files = {
        "/a.so": symbols([b"a"], [b"b", b"none"]),
        "/b.so": symbols([b"b"], [b"a"]),
        "/c.so": symbols([b"a", b"b"], [b"a"]),
    }
    assert undefined(files) == {
        "/a.so": [("b", ("/b.so", "/c.so")), ("none", ())],
        "/b.so": [("a", ("/a.so", "/c.so"))],
    }


def test_a_file_that_cannot_be_read_may_have_everything() -> None:
    assert undefined({"/a.so": symbols([], [b"none"]), "/damaged.so": None}) == {"/a.so": [("none", ("/damaged.so",))]}


def test_what_very_many_have_is_not_asked_for() -> None:
    files = {f"/{number}.so": symbols([b"common"], []) for number in range(65)}
    assert undefined(files | {"/a.so": symbols([], [b"common", b"none"])}) == {"/a.so": [("none", ())]}


def test_more_kinds_of_symbols_than_any_real_image_has_are_left_alone() -> None:
    """600 files that each ask for 600 symbols, each of which other files have."""
    draw = random.Random(1)
    names = [f"symbol_{number}".encode() for number in range(600)]
    files = {f"/{number}.so": symbols(draw.sample(names, 300), names) for number in range(600)}
    begin = time.monotonic()
    assert undefined(files) is None
    assert time.monotonic() - begin < 10


def test_the_facts_of_a_profile_lose_their_symbols() -> None:
    assert finished(image({"/a.so": symbols([b"a"], [])})).objects["/a.so"].symbols is None
