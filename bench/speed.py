"""imgcheck beside the tools that do the same work today, image by image, and how its cost grows.

`python -m bench.speed` measures everything and writes the tables of docs/performance.md; with names (of images, or
`growth`) these alone, the other tables stay. Each result is kept as soon as it is there, so after an interruption
`python -m bench.speed --missing` measures what is not there yet. Every command runs on the same machine in the same
minutes, in turn; the page cache holds the layers for all of them alike.
"""

import hashlib
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench import images, speed_tables
from bench.measure import Measured, measure
from bench.speed_tables import GROWTH, Growth, Point, Result, Row
from bench.tf112 import layer_blobs
from imgcheck.documents import ImageProfile, decode
from tests.debian_nonfree import cuobjdump
from tests.peers import Registry, start_registry
from tests.tools import CHECKOUT, cache_directory, need, run

ROUNDS = 3
LONG = 5.0
"""Seconds of a command from which on a round less does."""
PATIENCE = 300
"""Seconds after which a command is stopped."""
KEPT = "speed-results"


class Contender(NamedTuple):
    name: str
    command: str
    """For sh, with nothing but absolute paths."""
    rounds: int = ROUNDS
    """Timed runs; 0 where the first must do: it takes the place of many, or needs what the one before it wrote."""
    first: str = ""
    """What is run at first, watched and not timed, where that is not `command`."""


def local(reference: str, work: Path) -> Iterator[Contender]:
    """Reading the image from its layout, and the floor below that."""
    blobs = " ".join(shlex.quote(str(blob)) for blob in layer_blobs(reference))
    stored = f"{_imgcheck(reference, work)} --store {work}/store"
    yield Contender(speed_tables.COLD, f"{_imgcheck(reference, work)} --no-store", first=stored)
    yield Contender(speed_tables.WARM, stored)
    yield Contender(speed_tables.GZIP, f"gzip -dc {blobs}")
    yield Contender(speed_tables.IGZIP, f"{need('igzip')} -dc {blobs}")
    yield Contender(speed_tables.TAR, f"tar -tif {work}/layers.tar")


def remote(name: str, work: Path) -> Iterator[Contender]:
    """Reading it from a registry of this machine."""
    skopeo = f"{need('skopeo')} --insecure-policy copy -q --src-tls-verify=false docker://{name}"
    yield Contender(speed_tables.REGISTRY, f"{_imgcheck(name, work)} --no-store --plain-http", 2)
    yield Contender(speed_tables.ATTACHED, f"{_imgcheck(name, work)} --no-store --plain-http --trust-attached", 2)
    # To a place of its own each time: to remove what is there may take longer than to copy.
    yield Contender(speed_tables.SKOPEO, f"{skopeo} oci:{work}/copy-$$:a && ln -sfn copy-$$ {work}/copy", 2)


def today(work: Path) -> Iterator[Contender]:
    """What people run to learn the same; the copy of the image is made by then."""
    each = f"xargs -r -d '\\n' -a {work}/elf-files"
    gpu = f"{each} grep -lsaF __nv_relfatbin | xargs -r -n1 {cuobjdump()} --list-elf"
    yield Contender(speed_tables.UMOCI, f"{need('umoci')} unpack --image {work}/copy:a {work}/root", rounds=0)
    yield Contender(speed_tables.OBJDUMP, f"{each} -n1 {need('objdump')} -d", rounds=0)
    yield Contender(speed_tables.READELF, f"{each} -n50 {need('readelf')} -W -d -V -n", rounds=0)
    yield Contender(speed_tables.CUOBJDUMP, f"{gpu} || true", rounds=0)


def _imgcheck(reference: str, work: Path) -> str:
    return f"{sys.executable} -m imgcheck image {reference} --quiet -o json={work}/needs.json"


def measure_image(name: str) -> Result:
    """Every contender on one image."""
    reference = images.IMAGES[name]()
    blobs = layer_blobs(reference)
    with tempfile.TemporaryDirectory(dir=cache_directory("bench")) as directory:
        work = Path(directory)
        with (work / "layers.tar").open("wb") as tar:
            subprocess.run(["gzip", "-dc", *map(str, blobs)], stdout=tar, check=True)
        rows = _in_turn(list(local(reference, work)))
        with start_registry(work / "registry") as registry:
            rows += _in_turn(list(remote(_pushed(registry, reference, work), work)))
        profile = decode((work / "needs.json").read_bytes(), ImageProfile, name)
        # Where there is no code, nobody runs those tools.
        for contender in today(work) if profile.objects else ():
            if contender.name == speed_tables.OBJDUMP:
                (work / "elf-files").write_text("".join(f"{path}\n" for path in _elf_files(work / "root")))
            rows += _in_turn([contender])
        return Result(
            name=name,
            code=_code(),
            taken=time.strftime("%Y-%m-%d %H:%M"),
            load=os.getloadavg()[1],
            layers=len(blobs),
            packed=sum(blob.stat().st_size for blob in blobs),
            unpacked=(work / "layers.tar").stat().st_size,
            profile=(work / "needs.json").stat().st_size,
            rows=rows,
        )


def _pushed(registry: Registry, reference: str, work: Path) -> str:
    """The image's name in the registry, with its profile attached: from the facts that are in the store by now."""
    name = registry.push(reference, "bench/image:1")
    run(sys.executable, "-m", "imgcheck", "attach", name, "--plain-http", "--store", work / "store", "--quiet",
        cwd=CHECKOUT, env={**os.environ, "NO_PROXY": "*"})  # fmt: skip
    return name


def _elf_files(root: Path) -> Iterator[Path]:
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield path


def _in_turn(contenders: list[Contender]) -> list[Row]:
    """Each contender's row: the first run is watched, the others are timed, in turn, so that a busy moment hits all."""
    first = {each.name: _run(each, watch_memory=True) for each in contenders}
    runs: dict[str, list[Measured]] = {each.name: [] for each in contenders}
    for number in range(ROUNDS):
        for each in contenders:
            if number < each.rounds - (first[each.name].seconds > LONG):
                runs[each.name].append(_run(each))
    return [_row(name, taken or [first[name]], first[name].megabytes) for name, taken in runs.items()]


def _run(contender: Contender, watch_memory: bool = False) -> Measured:
    print(f"{time.strftime('%H:%M:%S')} {contender.name}", file=sys.stderr, flush=True)
    command = contender.first if watch_memory and contender.first else contender.command
    return measure(f"timeout {PATIENCE} sh -c {shlex.quote(command)}", watch_memory)


def _row(name: str, runs: list[Measured], megabytes: float) -> Row:
    seconds = statistics.median(run.seconds for run in runs)
    stopped = PATIENCE if seconds >= PATIENCE else 0
    return Row(name, seconds, statistics.median(run.processor for run in runs), megabytes, stopped)


def measure_growth() -> Growth:
    """The cold answer for images that differ in one size alone."""
    return Growth(
        code=_code(),
        taken=time.strftime("%Y-%m-%d %H:%M"),
        load=os.getloadavg()[1],
        code_size=[_point(images.code(size)) for size in (50, 100, 200, 400, 0)],
        files=[_point(images.files(count)) for count in (10_000, 30_000, 100_000, 300_000)],
        layers=[_point(images.layers(count)) for count in (5, 10, 20, 40)],
    )


def _point(reference: str) -> Point:
    with tempfile.TemporaryDirectory(dir=cache_directory("bench")) as directory:
        needs = Path(directory, "needs.json")
        command = f"{_imgcheck(reference, Path(directory))} --no-store"
        contender = Contender(reference.rpartition("/")[2], command)
        taken = [_run(contender)]
        if taken[0].seconds < LONG:
            taken.append(_run(contender))
        profile = decode(needs.read_bytes(), ImageProfile, str(needs))
        return Point(
            code=sum(facts.size for facts in profile.objects.values()),
            files=_members(reference),
            layers=len(profile.layers),
            seconds=min(run.seconds for run in taken),
            processor=min(run.processor for run in taken),
            profile=needs.stat().st_size,
        )


def _members(reference: str) -> int:
    from imgcheck.sources.open import open_image

    with open_image(reference) as image:
        return sum(1 for layer in image.layers for _ in layer.entries())


def _code() -> str:
    """A digest of all of imgcheck: results of other code count as missing."""
    total = hashlib.sha256()
    for path in sorted((CHECKOUT / "imgcheck").rglob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


def _kept(name: str) -> Path:
    return cache_directory("bench", KEPT) / f"{name.replace(' ', '-')}.json"


def _known(name: str) -> Result | Growth | None:
    """What was measured of `name` by whatever code, where anything was."""
    try:
        return msgspec.json.decode(_kept(name).read_bytes(), type=Growth if name == GROWTH else Result)
    except (OSError, msgspec.MsgspecError):
        return None


def main(arguments: list[str]) -> None:
    """Measure what was named, or all, and write the tables of everything that is known."""
    names = [*images.IMAGES, GROWTH]
    chosen = [name for name in arguments if name != "--missing"] or names
    if unknown := set(chosen) - set(names):
        sys.exit(f"no such image: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    for name in chosen:
        known = _known(name)
        if "--missing" in arguments and known and known.code == _code():
            continue
        found = measure_growth() if name == GROWTH else measure_image(name)
        _kept(name).write_bytes(msgspec.json.encode(found))
        print(speed_tables.growth(found) if isinstance(found, Growth) else speed_tables.image(found), flush=True)
    results = [known for name in names if (known := _known(name))]
    speed_tables.write(results)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that temporary directories go
    main(sys.argv[1:])
