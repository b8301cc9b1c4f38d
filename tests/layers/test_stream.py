"""Blobs as streams: every compression, every fault, and threads that end."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import subprocess
import threading
import time
import zlib
from collections.abc import Callable
from typing import BinaryIO

import pytest
import zstandard

from imgcheck.documents.image import LayerInfo
from imgcheck.errors import DigestError, LayerError
from imgcheck.layers.stream import TarLayer, decompressed, is_compressed
from tests.layers.layouts import archive, digest_of, file
from tests.tools import need

TAR = archive([file(f"dir/file-{i}", os.urandom(3000) + bytes(9000)) for i in range(300)])

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "gzip of many members": lambda data: b"".join(gzip.compress(data[i : i + 9999]) for i in range(0, len(data), 9999)),
    "gzip with zeros behind": lambda data: gzip.compress(data) + bytes(100),
    "zstd": zstandard.compress,
    "zstd of many frames": lambda data: b"".join(
        zstandard.compress(data[i : i + 99999]) for i in range(0, len(data), 99999)
    ),
    "zstd behind a skippable frame": lambda data: b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstandard.compress(data),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "xz of several streams": lambda data: lzma.compress(data[:999]) + bytes(8) + lzma.compress(data[999:]) + bytes(4),
}


def layer(blob: bytes, digest: str = "", diff_id: str = "") -> TarLayer:
    return TarLayer(LayerInfo(digest=digest, diff_id=diff_id, size=len(blob)), lambda: io.BytesIO(blob))


def names(of: TarLayer) -> list[str]:
    return [entry.path for entry, _ in of.entries()]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = threading.active_count()
    yield
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compression_is_told_by_content_and_both_digests_are_verified(compression: str) -> None:
    blob = COMPRESSIONS[compression](TAR)
    found = layer(blob, digest_of(blob), digest_of(TAR))
    assert names(found) == [f"dir/file-{i}" for i in range(300)]
    assert names(found) == [f"dir/file-{i}" for i in range(300)], "a layer can be read again"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_wrong_digest_names_the_blob(compression: str) -> None:
    blob = COMPRESSIONS[compression](TAR)
    wrong = "sha256:" + "0" * 64
    with pytest.raises(DigestError, match=f"blob {wrong}: its bytes hash to {digest_of(blob)}"):
        names(layer(blob, digest=wrong))
    with pytest.raises(DigestError, match=f"layer {digest_of(blob)}: its content .diff_id {wrong}. hash"):
        names(layer(blob, digest=digest_of(blob), diff_id=wrong))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_damaged_blob_is_told_by_its_digest_whatever_breaks_first(compression: str) -> None:
    blob = bytearray(COMPRESSIONS[compression](TAR))
    digest = digest_of(bytes(blob))
    for at in (len(blob) // 3, len(blob) - 20):
        damaged = bytes(blob[:at]) + bytes(b ^ 0x5A for b in blob[at : at + 8]) + bytes(blob[at + 8 :])
        for wrong in (damaged, bytes(blob[:at])):
            with pytest.raises(DigestError, match=f"blob {digest}: its bytes hash to {digest_of(wrong)}"):
                names(layer(wrong, digest=digest))


@pytest.mark.parametrize("frames", [1, 30])
def test_zstd_stream_that_is_cut_off_is_an_error_without_any_digest(frames: int) -> None:
    step = -(-len(TAR) // frames)
    pieces = [TAR[at : at + step] for at in range(0, len(TAR), step)]
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    blob = b"".join(compressor.compress(piece) for piece in pieces)
    assert len(names(layer(blob))) == 300
    # Behind the last member nothing but zeros is left, so that only the frame tells.
    for lost in (1, 4, 5, 8):
        with pytest.raises(LayerError, match="truncated"):
            names(layer(blob[:-lost]))


def test_digests_of_sha512_are_verified() -> None:
    blob = gzip.compress(TAR)
    right = "sha512:" + hashlib.sha512(blob).hexdigest()
    assert len(names(layer(blob, digest=right))) == 300
    with pytest.raises(DigestError, match=f"hash to {right}"):
        names(layer(blob, digest="sha512:" + "0" * 128))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_truncated_blob_is_an_error_wherever_it_is_cut(compression: str) -> None:
    blob = COMPRESSIONS[compression](TAR)
    for cut in (len(blob) // 3, len(blob) // 2, len(blob) - 120 if compression != "none" else len(blob) - 12000):
        with pytest.raises((LayerError, DigestError)):
            names(layer(blob[:cut], digest=digest_of(blob)))


@pytest.mark.parametrize("compression", ["gzip", "zstd", "xz", "bzip2"])
def test_damaged_compression_is_an_error(compression: str) -> None:
    blob = bytearray(COMPRESSIONS[compression](TAR))
    middle = len(blob) // 2
    blob[middle : middle + 64] = bytes(64)
    with pytest.raises((LayerError, DigestError)):
        names(layer(bytes(blob), diff_id=digest_of(TAR)))


def test_bytes_behind_the_end_of_the_archive_count_for_the_digests() -> None:
    padded = TAR + bytes(1 << 20) + b"trailing"
    assert len(names(layer(gzip.compress(padded), diff_id=digest_of(padded)))) == 300
    with pytest.raises(DigestError):
        names(layer(gzip.compress(padded), diff_id=digest_of(TAR)))


def test_xz_that_asks_for_gigabytes_of_memory_is_refused() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    blob = bytearray(lzma.compress(TAR, lzma.FORMAT_XZ, lzma.CHECK_NONE, filters=filters))
    assert len(names(layer(bytes(blob)))) == 300
    place = blob.index(b"\x21\x01", 12) + 2
    blob[place] = 37  # 1.5 GiB (xz file format, 5.3.1)
    blob[20:24] = zlib.crc32(blob[12:20]).to_bytes(4, "little")
    with pytest.raises(LayerError, match="Memory usage limit"):
        names(layer(bytes(blob)))


def test_garbage_behind_gzip_data_is_refused() -> None:
    with pytest.raises(LayerError, match="damaged"):
        names(layer(gzip.compress(TAR) + b"garbage that is no gzip member"))


def test_empty_blob_is_an_empty_layer_and_html_is_none() -> None:
    assert names(layer(b"")) == []
    with pytest.raises(LayerError, match="no tar archive"):
        names(layer(b"<html>sign in</html>" * 100))


def test_digest_of_another_algorithm_is_refused_by_name() -> None:
    with pytest.raises(DigestError, match="md5:abc"):
        names(layer(TAR, digest="md5:abc"))


def test_iterator_closed_early_verifies_nothing_and_ends_its_threads() -> None:
    entries = layer(gzip.compress(TAR * 20), digest="sha256:" + "0" * 64).entries()
    next(entries)
    entries.close()


def test_error_of_the_source_comes_through() -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise ConnectionResetError(104, "Connection reset by peer")

    def opened() -> BinaryIO:
        return Broken()

    with pytest.raises(LayerError, match="Connection reset by peer"):
        names(TarLayer(LayerInfo(), opened))


def test_short_reads_of_the_source_are_no_end() -> None:
    class Slow(io.BytesIO):
        def read(self, size: int = -1) -> bytes:
            return super().read(min(size, 777))

    blob = gzip.compress(TAR)
    found = TarLayer(LayerInfo(digest=digest_of(blob), diff_id=digest_of(TAR)), lambda: Slow(blob))
    assert len(names(found)) == 300


def test_progress_counts_the_bytes_of_the_blob() -> None:
    class Count:
        total, done, finished = 0, 0, False

        def start(self, task: str, total: int | None = None) -> None:
            self.total = total

        def advance(self, task: str, amount: int) -> None:
            self.done += amount

        def finish(self, task: str) -> None:
            self.finished = True

    blob, count = gzip.compress(TAR), Count()
    for _ in layer(blob).entries(count):
        pass
    assert (count.total, count.done, count.finished) == (len(blob), len(blob), True)


@pytest.mark.slow
def test_decompression_bomb_is_refused() -> None:
    """9 GiB of zeros in less than 1 MB of zstd: more than 2000 to one."""
    head = archive([file("f", "f")])[:1024]
    command = f"{need('zstd')} -q -1 -c"
    with subprocess.Popen(command.split(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        writer = threading.Thread(target=_feed, args=(process.stdin, head))
        writer.start()
        blob = process.stdout.read()
        writer.join()
    assert len(blob) < 1 << 20
    with pytest.raises(LayerError, match="refused"):
        names(layer(blob))


def _feed(pipe: BinaryIO, head: bytes) -> None:
    with pipe:
        pipe.write(head)
        for _ in range(9 << 10):
            pipe.write(bytes(1 << 20))


@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_what_counts_as_compressed_is_what_is_decompressed(compress: Callable[[bytes], bytes]) -> None:
    blob = compress(TAR)
    assert decompressed(io.BytesIO(blob)).read(512) == TAR[:512]
    assert is_compressed(blob[:6]) == (blob != TAR)
