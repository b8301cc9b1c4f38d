"""Ten thousand files must not keep anybody waiting."""

import time

from imgcheck.documents.facts import CodeFacts, Linkage, Verneed
from imgcheck.documents.image import FileRecord, ImageConfig, ImageProfile, LayerInfo, Platform, TreeIndex
from imgcheck.loader.model import Loader


def test_ten_thousand_files_resolve_in_seconds() -> None:
    """4,000 libraries in chains of needs, 6,000 plugins on top of them, a command that reaches none."""
    objects: dict[str, CodeFacts] = {}
    libc = Linkage(64, "x86_64", soname="libc.so.6", verdef=tuple(f"GLIBC_2.{i}" for i in range(40)))
    objects["/lib/libc.so.6"] = CodeFacts(1, linkage=libc)
    verneed = (Verneed("libc.so.6", tuple(f"GLIBC_2.{i}" for i in range(20))),)
    for index in range(4000):
        needs = tuple(f"lib{other}.so" for other in (index + 1, index + 7, index + 31) if other % 100 > index % 100)
        linkage = Linkage(64, "x86_64", soname=f"lib{index}.so", needed=(*needs, "libc.so.6"), verneed=verneed)
        objects[f"/usr/lib/lib{index}.so"] = CodeFacts(1, linkage=linkage)
    for index in range(6000):
        needs = (f"lib{index % 40 * 100}.so", "libc.so.6")
        runpath = ("$ORIGIN/../lib",) if index % 3 else ()
        linkage = Linkage(64, "x86_64", needed=needs, runpath=runpath, verneed=verneed)
        objects[f"/opt/plugins{index % 50}/p{index}.so"] = CodeFacts(1, linkage=linkage)
    files = tuple(FileRecord(path, path, 0) for path in sorted(objects))
    image = ImageProfile("1.0", "test", Platform(), ImageConfig(), (LayerInfo(),), files, objects, TreeIndex())
    start = time.process_time()
    closure = Loader(image).close()
    assert time.process_time() - start < 20
    assert len(closure.reaches) == len(objects)
    missed = {problem.needed for problem in closure.problems}
    assert missed <= {f"lib{index}.so" for index in range(4000, 4040)}
