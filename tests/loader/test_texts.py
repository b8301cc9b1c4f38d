"""ld.so.cache in both formats and both byte orders, ld.so.conf with its includes, musl's path file."""

import struct
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgcheck.documents.image import CacheEntry
from imgcheck.loader.cache import read_cache
from imgcheck.loader.conf import read_conf, read_musl_path, read_preload

ENTRIES = (CacheEntry("libb.so.2", "/opt/libb.so.2", 0x303), CacheEntry("liba.so.1", "/opt/liba.so.1", 0x303))


def new_cache(order: str, flags: int, base: int = 0) -> bytes:
    """The new format; offsets count from its own header."""
    strings, table, at = b"", b"", 48 + 24 * len(ENTRIES)
    for entry in ENTRIES:
        name, path = entry.soname.encode() + b"\0", entry.path.encode() + b"\0"
        table += struct.pack(order + "iIIIQ", entry.flags, at + len(strings), at + len(strings) + len(name), 0, 0)
        strings += name + path
    head = b"glibc-ld.so.cache1.1" + struct.pack(order + "IIB3xI12x", len(ENTRIES), len(strings), flags, 0)
    return head + table + strings


def old_cache(order: str) -> bytes:
    """The old format; offsets count from the end of its table."""
    strings, table = b"", b""
    for entry in ENTRIES:
        name, path = entry.soname.encode() + b"\0", entry.path.encode() + b"\0"
        table += struct.pack(order + "iII", entry.flags, len(strings), len(strings) + len(name))
        strings += name + path
    return b"ld.so-1.7.0\0" + struct.pack(order + "I", len(ENTRIES)) + table + strings


@pytest.mark.parametrize("files", [2, 200])
def test_files_that_include_each_other_are_read_once(files: int) -> None:
    names = [f"/etc/ld.so.conf.d/{number}.conf" for number in range(files)]
    texts = {name: b"include *.conf\n" * 20 + f"/opt{name}\n".encode() for name in names}
    texts["/etc/ld.so.conf"] = b"include ld.so.conf.d/*.conf\n"
    assert set(read_conf(texts)) == {f"/opt{name}" for name in names}


@pytest.mark.parametrize(("order", "flags"), [("<", 0), ("<", 2), (">", 3), (">", 0)])
def test_the_new_format_in_either_byte_order(order: str, flags: int) -> None:
    assert read_cache(new_cache(order, flags)) == ENTRIES


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_old_format(order: str) -> None:
    assert read_cache(old_cache(order)) == ENTRIES


def test_the_new_format_behind_the_old_one_wins() -> None:
    old = b"ld.so-1.7.0\0" + struct.pack("<I", 1) + struct.pack("<iII", 3, 0, 0)
    padded = old + bytes(-len(old) % 8)
    assert read_cache(padded + new_cache("<", 2)) == ENTRIES


def test_this_machines_cache_reads_as_ldconfig_prints_it() -> None:
    printed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    expected = [line.split()[0] + " " + line.rpartition("=> ")[2] for line in printed.splitlines() if "=>" in line]
    found = read_cache(Path("/etc/ld.so.cache").read_bytes())
    assert [f"{entry.soname} {entry.path}" for entry in found] == expected


@given(st.integers(0, 200), st.binary(max_size=64))
def test_damaged_caches_read_as_far_as_they_go(cut: int, noise: bytes) -> None:
    for cache in (new_cache("<", 2), old_cache("<")):
        for data in (cache[:cut], cache[:cut] + noise + cache[cut + len(noise) :]):
            assert all(isinstance(entry, CacheEntry) for entry in read_cache(data))


def test_includes_are_taken_where_they_stand_and_sorted() -> None:
    texts = {
        "/etc/ld.so.conf": b"# first\n/opt/a/\ninclude ld.so.conf.d/*.conf\n/opt/z=libc6\nhwcap 0 nosegneg\n/opt/a\n",
        "/etc/ld.so.conf.d/20.conf": b"/opt/c:/opt/d\n",
        "/etc/ld.so.conf.d/10.conf": b"/opt/b # note\n",
        "/etc/ld.so.conf.d/10.conf.bak": b"/opt/never\n",
    }
    assert read_conf(texts) == ("/opt/a", "/opt/b", "/opt/c", "/opt/d", "/opt/z")


def test_a_configuration_that_includes_itself_ends() -> None:
    assert read_conf({"/etc/ld.so.conf": b"/opt/a\ninclude /etc/ld.so.conf\n"}) == ("/opt/a",)


def test_preload_and_musl_files() -> None:
    assert read_preload(b"/a.so /b.so:/c.so # no\n/d.so\n") == ("/a.so", "/b.so", "/c.so", "/d.so")
    assert read_musl_path(b"/lib:/usr/lib\n/opt/lib\n") == ("/lib", "/usr/lib", "/opt/lib")


def test_a_configuration_with_the_same_include_over_and_over_is_read_in_no_time() -> None:
    texts = {f"/etc/ld.so.conf.d/{number}.conf": b"/opt/x\n" for number in range(2000)}
    texts["/etc/ld.so.conf"] = b"include x*\n" * 100_000 + b"include ld.so.conf.d/*.conf\n"
    started = time.process_time()
    assert read_conf(texts) == ("/opt/x",)
    assert time.process_time() - started < 5
