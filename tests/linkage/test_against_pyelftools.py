"""Our reading of ELF files agrees with pyelftools' on the programs and libraries of this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.linkage.read import read_linkage

_PLACES = ("/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_TAGS = {"DT_NEEDED": "needed", "DT_SONAME": "soname", "DT_RPATH": "rpath", "DT_RUNPATH": "runpath"}


def _some_elf_files() -> Iterator[Path]:
    """Every 23rd regular ELF file of the system's directories, up to 40: enough kinds, and quick."""
    found = 0
    for place in _PLACES:
        for path in sorted(Path(place).glob("*"))[::23] if Path(place).is_dir() else ():
            if found < 40 and path.is_file() and not path.is_symlink() and path.open("rb").read(4) == b"\x7fELF":
                found += 1
                yield path


FILES = list(_some_elf_files())


def test_there_are_files_to_compare():
    assert len(FILES) >= 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_dynamic_table_versions_and_sections_agree(path: Path):
    data = path.read_bytes()
    linkage = read_linkage(Elf(data))
    with path.open("rb") as file:
        theirs = ELFFile(file)
        entries = [tag for segment in theirs.iter_segments() if isinstance(segment, DynamicSegment)
                   for tag in segment.iter_tags()]  # fmt: skip
        texts = {name: [getattr(tag, name) for tag in entries if tag.entry.d_tag == kind]
                 for kind, name in _TAGS.items()}  # fmt: skip
        assert list(linkage.needed) == texts["needed"]
        assert linkage.soname == "".join(texts["soname"])
        assert list(linkage.runpath) == [part for text in texts["runpath"] for part in text.split(":")]
        assert [(s.name, s.addr, s.size) for s in Elf(data).sections] == [
            (s.name, s["sh_addr"], s["sh_size"]) for s in theirs.iter_sections()
        ]
        assert _needed_versions(theirs) == {(need.library, v) for need in linkage.verneed for v in need.versions}
        assert _defined_versions(theirs) == set(linkage.verdef)


def _needed_versions(elf: ELFFile) -> set[tuple[str, str]]:
    sections = [section for section in elf.iter_sections() if isinstance(section, GNUVerNeedSection)]
    return {(need.name, aux.name) for s in sections for need, auxiliaries in s.iter_versions() for aux in auxiliaries}


def _defined_versions(elf: ELFFile) -> set[str]:
    sections = [section for section in elf.iter_sections() if isinstance(section, GNUVerDefSection)]
    return {next(iter(auxiliaries)).name for section in sections for _, auxiliaries in section.iter_versions()}
