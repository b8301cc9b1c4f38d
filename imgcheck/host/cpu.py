"""The CPU of a host, from /proc/cpuinfo and, on POWER, the auxiliary vector."""

import os
import re
import struct

from imgcheck.architectures import spelt
from imgcheck.documents.host import Cpu, Fact, known, unknown
from imgcheck.host.files import Root
from imgcheck.knowledge import Knowledge, cpus

_CPUINFO = "/proc/cpuinfo"
_AUXV = "/proc/self/auxv"
_AT_NULL, _AT_HWCAP2 = 0, 26
_FLAG_KEYS = {"x86_64": "flags", "i386": "flags", "aarch64": "Features"}


def probe_cpu(root: Root, knowledge: Knowledge) -> Cpu:
    """Architecture, product, microarchitecture and features; each unknown where its source is absent."""
    info = _first_processor(root.text(_CPUINFO) or "")
    architecture = _architecture(root, info)
    features = _features(root, knowledge, architecture, info)
    return Cpu(
        architecture=architecture,
        model=_model(info),
        microarchitecture=_microarchitecture(knowledge, architecture, info, features),
        features=features,
    )


def _first_processor(text: str) -> dict[str, str]:
    """Keys of the first processor, and those of the trailing block that PowerPC kernels print once."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _architecture(root: Root, info: dict[str, str]) -> Fact[str]:
    if root.live:
        machine = os.uname().machine
        return known(spelt(machine) or machine, "uname")
    captured = (root.text("/proc/sys/kernel/arch") or "").strip()
    if captured:
        return known(spelt(captured) or captured, "/proc/sys/kernel/arch")
    if info.get("flags"):
        return known("x86_64" if " lm " in f" {info['flags']} " else "i386", _CPUINFO)
    if "CPU implementer" in info:
        return known("aarch64" if info.get("CPU architecture") == "8" else "arm", _CPUINFO)
    # A big-endian POWER system prints the same text; Linux containers for POWER are little-endian.
    if info.get("cpu", "").startswith("POWER"):
        return known("ppc64le", _CPUINFO)
    return unknown(f"{_CPUINFO} is absent or of an unknown form")


def _model(info: dict[str, str]) -> Fact[str]:
    for key in ("model name", "cpu", "Model", "uarch"):
        if info.get(key):
            return known(info[key], _CPUINFO)
    return unknown(f"{_CPUINFO} names no product")


def _features(root: Root, knowledge: Knowledge, architecture: Fact[str], info: dict[str, str]) -> Fact[tuple[str, ...]]:
    machine = architecture.value or ""
    if machine == "ppc64le":
        return _power_features(root, knowledge, info)
    listed = info.get(_FLAG_KEYS.get(machine, ""))
    if not listed:  # no CPU has none
        return unknown(f"{_CPUINFO} lists no features")
    return known(tuple(sorted(cpus.from_flags(knowledge, machine, listed.split()))), _CPUINFO)


def _power_features(root: Root, knowledge: Knowledge, info: dict[str, str]) -> Fact[tuple[str, ...]]:
    hwcap2 = _auxiliary(root.data(_AUXV) or b"").get(_AT_HWCAP2)
    if hwcap2 is not None:
        table = cpus.features(knowledge, "ppc64le").values()
        return known(tuple(sorted(entry.id for entry in table if entry.hwcap2 & hwcap2)), f"AT_HWCAP2 of {_AUXV}")
    generation = re.match(r"POWER(\d+)", info.get("cpu", ""))
    cpu = cpus.named(knowledge, f"power{generation[1]}le") if generation else None
    if cpu is None:
        return unknown(f"neither {_AUXV} nor a known POWER generation in {_CPUINFO}")
    return known(tuple(sorted(cpu.features)), f"{_CPUINFO}: features of {cpu.microarchitecture}")


def _auxiliary(data: bytes) -> dict[int, int]:
    """Pairs of the auxiliary vector of a 64-bit little-endian process: u64 type, u64 value, up to AT_NULL."""
    pairs: dict[int, int] = {}
    for kind, value in struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]):
        if kind == _AT_NULL:
            break
        pairs[kind] = value
    return pairs


def _microarchitecture(
    knowledge: Knowledge, architecture: Fact[str], info: dict[str, str], features: Fact[tuple[str, ...]]
) -> Fact[str]:
    if not architecture.known or not features.known:
        return unknown("the CPU's features are not known")
    product = cpus.product_of(knowledge, info.get("model name", info.get("cpu", "")))
    if product:
        return known(product, f"{_CPUINFO}: product name")
    best = cpus.closest(
        knowledge,
        architecture.value or "",
        info.get("vendor_id", ""),
        info.get("CPU part", ""),
        frozenset(features.value or ()),
    )
    return known(best, f"{_CPUINFO}: best match of its features") if best else unknown("no microarchitecture fits")
