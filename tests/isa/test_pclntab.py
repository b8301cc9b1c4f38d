"""Go's own table of functions: it bounds and names them in every form, and a hostile one is passed over."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.engine import analyse_isa
from imgcheck.binaries.isa.layout import Layout
from imgcheck.documents.facts import Isa
from tests.isa.test_layouts import GO, built
from tests.tools import need

_MODES = {"exe": (), "stripped": ("-ldflags", "-s -w"), "pie": ("-buildmode=pie", "-ldflags", "-s -w")}
_MACHINES = ("amd64", "arm64", "ppc64le")
_BASE, _TEXT, _TABLE = 0x400000, 0x1000, 0x2000
_STARTS, _NAMES = (0, 16, 48), (b"main.main", b"main.work", b"runtime.exit")
_END = 64


def program(mode: str, machine: str) -> Path:
    return built(f"go-{machine}-{mode}", GO, need("go"), "build", *_MODES[mode], "-o", "{target}", "{text}",
                 GOARCH=machine, CGO_ENABLED="0")  # fmt: skip


def layout_of(path: Path) -> Layout:
    return Layout(Elf(path.read_bytes()))


def isa_of(path: Path) -> Isa:
    isa = analyse_isa(Elf(path.read_bytes()))
    assert isa is not None
    return isa


@pytest.mark.parametrize("machine", _MACHINES)
def test_the_table_has_the_functions_that_symbols_name(machine: str) -> None:
    layout = layout_of(program("exe", machine))
    symbols, go = layout.static_symbols, layout.go
    functions = np.unique(symbols.value[symbols.type == 2])
    assert set(go.start.tolist()) == set(functions.tolist()) - {int(go.end[-1])}  # the last symbol is runtime.etext
    assert (go.end[:-1] == go.start[1:]).all()
    named = {int(value): layout.elf.string(int(at)) for value, at in zip(symbols.value, symbols.string, strict=True)}
    wrong = [layout.elf.string(int(at)) for start, at in zip(go.start.tolist(), go.name.tolist(), strict=True)
             if "[...]" not in layout.elf.string(int(at))
             and layout.elf.string(int(at)) != named[start].replace(".abi0", "")]  # fmt: skip
    assert len(go.start) > 1000 and not wrong


@pytest.mark.parametrize("mode", ["stripped", "pie"])
@pytest.mark.parametrize("machine", _MACHINES)
def test_a_stripped_program_is_judged_as_one_with_symbols(mode: str, machine: str) -> None:
    path = program(mode, machine)
    assert not len(layout_of(path).static_symbols.value)
    found, known = isa_of(path), isa_of(program("exe", machine))
    assert found.uses
    assert {use.feature: use.answer for use in found.uses} == {use.feature: use.answer for use in known.uses}
    assert all(use.answer == "dispatched" for use in found.uses)
    assert not [use.function for use in found.uses if use.function.startswith("sub_")]


def table(form: str) -> bytes:
    """The table of three functions as a version of Go writes it, as it lies at its address."""
    names = b"".join(name + b"\0" for name in _NAMES)
    at = np.cumsum([0, *(len(name) + 1 for name in _NAMES)])[:3].tolist()
    starts = [*_STARTS, _END]
    if form == "1.2":
        records = 16 + 8 * 7
        fields = [word for i in range(3) for word in (_BASE + _TEXT + starts[i], records + 16 * i)]
        body = struct.pack("<7Q", *fields, _BASE + _TEXT + _END)
        first = records + 16 * 3
        body += b"".join(struct.pack("<QII", _BASE + _TEXT + starts[i], first + at[i], 0) for i in range(3))
        return struct.pack("<IBBBBQ", 0xFFFFFFFB, 0, 0, 1, 8, 3) + body + names
    if form == "1.16":
        parts = 8 + 8 * 7
        behind = parts + len(names) + -(parts + len(names)) % 8
        head = struct.pack("<IBBBB7Q", 0xFFFFFFFA, 0, 0, 1, 8, 3, 0, parts, 0, 0, 0, behind)
        fields = [word for i in range(3) for word in (_BASE + _TEXT + starts[i], 56 + 16 * i)]
        body = struct.pack("<7Q", *fields, _BASE + _TEXT + _END)
        body += b"".join(struct.pack("<QII", _BASE + _TEXT + starts[i], at[i], 0) for i in range(3))
        return (head + names).ljust(behind, b"\0") + body
    magic = {"1.18": 0xFFFFFFF0, "1.20": 0xFFFFFFF1}[form]
    parts = 8 + 8 * 8
    behind = parts + len(names) + -(parts + len(names)) % 8
    head = struct.pack("<IBBBB8Q", magic, 0, 0, 1, 8, 3, 0, 0, parts, 0, 0, 0, behind)
    body = struct.pack("<7I", *[word for i in range(3) for word in (starts[i], 28 + 8 * i)], _END)
    body += b"".join(struct.pack("<Ii", starts[i], at[i]) for i in range(3))
    return (head + names).ljust(behind, b"\0") + body


def file_with(content: bytes) -> bytes:
    """A program that cannot be moved, with 64 bytes of code, the table, and module data behind it."""
    module = _TABLE + len(content) + -len(content) % 8
    names = b"\0.text\0.gopclntab\0.shstrtab\0"
    data = module + 23 * 8
    data_end = data + len(names)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 62, 1, _BASE + _TEXT, 64, data_end, 0, 64, 56, 1, 64,
                         4, 3)  # fmt: skip
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, data, data, 0x1000)
    words = struct.pack("<23Q", _BASE + _TABLE, *([0] * 21), _BASE + _TEXT)
    image = bytearray(data)
    image[:120] = header + load
    image[_TEXT : _TEXT + 64] = b"\xc3".ljust(16, b"\xcc") * 4
    image[_TABLE : _TABLE + len(content)] = content
    image[module:] = words
    sections = [(0,) * 10, (1, 1, 6, _BASE + _TEXT, _TEXT, 64, 0, 0, 16, 0),
                (7, 1, 2, _BASE + _TABLE, _TABLE, len(content), 0, 0, 8, 0),
                (18, 3, 0, 0, data, len(names), 0, 0, 1, 0)]  # fmt: skip
    return bytes(image) + names + b"".join(struct.pack("<IIQQQQIIQQ", *section) for section in sections)


@pytest.mark.parametrize("form", ["1.2", "1.16", "1.18", "1.20"])
def test_every_form_of_the_table_is_read(form: str) -> None:
    layout = Layout(Elf(file_with(table(form))))
    assert layout.go.start.tolist() == [_BASE + _TEXT + at for at in _STARTS]
    assert layout.go.end.tolist() == [_BASE + _TEXT + at for at in (*_STARTS[1:], _END)]
    assert [layout.name(int(start)) for start in layout.go.start] == [name.decode() for name in _NAMES]
    assert layout.is_go(_BASE + _TEXT) and not layout.is_go(_BASE + _TEXT + 4)


@pytest.mark.parametrize("form", ["1.2", "1.16", "1.18", "1.20"])
def test_a_table_whose_functions_lie_outside_the_code_or_out_of_order_is_passed_over(form: str) -> None:
    whole = table(form)
    for start, other in ((_STARTS[1], 0x5000), (_STARTS[1], 63)):
        wide = "<Q" if form in ("1.2", "1.16") else "<I"
        base = _BASE + _TEXT if wide == "<Q" else 0
        wrong = whole.replace(struct.pack(wide, base + start), struct.pack(wide, base + other))
        assert wrong != whole and not len(Layout(Elf(file_with(wrong))).go.start)


@settings(max_examples=300, deadline=None)
@given(form=st.sampled_from(["1.2", "1.16", "1.18", "1.20"]),
       changes=st.lists(st.tuples(st.integers(0, 250), st.integers(0, 255)), min_size=1, max_size=12),
       cut=st.integers(0, 200))  # fmt: skip
def test_a_hostile_table_raises_nothing(form: str, changes: list[tuple[int, int]], cut: int) -> None:
    content = bytearray(table(form))
    for at, byte in changes:
        content[at % len(content)] = byte
    layout = Layout(Elf(file_with(bytes(content[: max(len(content) - cut, 8)]))))
    inside = layout.in_code(layout.go.start)
    assert inside.all() and (layout.go.end > layout.go.start).all()
    assert all(isinstance(layout.name(int(start)), str) for start in layout.go.start)


def test_c_beside_go_keeps_its_unwind_entries() -> None:
    need("gcc")
    source = GO.replace("import (", '// static int twice(int x) { return 2 * x; }\nimport "C"\nimport (')
    source = source.replace("fmt.Println(", "fmt.Println(C.twice(2), ")
    path = built("go-cgo", source, need("go"), "build", "-buildmode=pie", "-ldflags", "-s -w", "-o", "{target}",
                 "{text}", CGO_ENABLED="1")  # fmt: skip
    layout = layout_of(path)
    assert layout.elf.section(".gopclntab") is None  # the linker has put the table among other data
    start = layout.unwind[0]
    assert 1000 < len(layout.go.start) < len(start)
    assert (np.diff(start) >= 0).all()
    assert {use.answer for use in isa_of(path).uses} == {"dispatched"}
