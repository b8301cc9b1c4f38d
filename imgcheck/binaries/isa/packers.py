"""Files whose code is packed until they run: told by the mark that the packer leaves (rules/analysis/packers.toml)."""

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.names import analysis


def packer(elf: Elf) -> str:
    """Which program has packed the file; "" where none has."""
    end = len(elf.data)
    for entry in analysis("packers")["packer"]:
        mark, start = entry["mark"].encode(), end - entry["from_end"]
        if start >= 0 and bytes(elf.data[start : start + len(mark)]) == mark:
            return entry["name"]
    return ""
