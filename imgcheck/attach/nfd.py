"""ImageProfile -> the image-compatibility spec of Node Feature Discovery, and what that cannot say.

Format: api/image-compatibility/v1alpha1 of kubernetes-sigs/node-feature-discovery, read by `nfd compat validate-node`,
which takes the first blob of the artifact for YAML; JSON is that too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from imgcheck import versions
from imgcheck.architectures import machine_of
from imgcheck.attach.push import Artifact
from imgcheck.check.context import Context
from imgcheck.check.cpu import demands
from imgcheck.check.needs import anywhere, needs_of
from imgcheck.documents.image import FileRecord, ImageProfile
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.cpus import LEVELS, baseline, level_features

ARTIFACT_TYPE = "application/vnd.nfd.image-compatibility.v1alpha1"
BLOB_TYPE = "application/vnd.nfd.image-compatibility.spec.v1alpha1+yaml"
_VERSION = "v1alpha1"
_REQUIRED, _WITH_GPU = "required", "with-gpu"
_EXPRESSED = ("architecture", "CPU", "kernel")
"""Of what an image needs, that which a spec can say; the architecture is the reader's --platform besides."""

Rule = dict[str, Any]


@dataclass(frozen=True)
class Spec:
    document: dict[str, Any]
    limits: tuple[str, ...]
    """What the image needs and the spec does not say, a sentence each."""


def spec_of(profile: ImageProfile, knowledge: Knowledge) -> Spec:
    """The needs of `profile` as far as a spec can say them, with what it leaves out."""
    table = knowledge.table("tables/nfd.toml")
    machine = machine_of(profile.platform.architecture)
    names: Mapping[str, str] = table["cpuid"].get(machine, {})
    context = anywhere(profile, knowledge)
    reached = [record for record in profile.files if context.closure.runs(record.path)]
    wanted = sorted(_required(context, machine))
    flags = [table["baseline"][machine]] if machine in table["baseline"] else []
    flags += [names[feature] for feature in wanted if feature in names]
    rules = [_flags("cpu", flags)] if flags else []
    rules += _kernel(profile, reached)
    gpu = [rule for vendor in _vendors(profile, reached) for rule in _gpu(vendor, table)]
    about = f"derived by imgcheck from the binaries of {profile.manifest_digest}"
    sets = [_set(_REQUIRED, rules, 1, about)] if rules else []
    if gpu:
        sets.append(_set(_WITH_GPU, rules + gpu, 2, f"{about}; for use of the GPU"))
    unnamed = [feature for feature in wanted if feature not in names]
    return Spec({"version": _VERSION, "compatibilities": sets}, tuple(_limits(context, unnamed)))


def artifact_of(spec: Spec) -> Artifact:
    return Artifact(ARTIFACT_TYPE, BLOB_TYPE, encode(spec), {})


def encode(spec: Spec) -> bytes:
    """The spec as indented JSON, which is YAML."""
    return msgspec.json.format(msgspec.json.encode(spec.document), indent=1) + b"\n"


def _required(context: Context, machine: str) -> set[str]:
    """Ids of the features that the image requires, a level's spelled out: older readers know no levels."""
    found = {each.name for each in demands(context) if each.certain}
    levels = found.intersection(LEVELS)
    spelled_out = {feature for level in levels for feature in level_features(context.knowledge, level)}
    return (found - levels) | (spelled_out - baseline(context.knowledge, machine))


def _kernel(profile: ImageProfile, reached: list[FileRecord]) -> Iterator[Rule]:
    """The newest ABI note's kernel, by major and minor number: what is behind them decides nothing in practice."""
    floors = [
        versions.parse(linkage.abi.removeprefix("linux "))
        for record in reached
        if (linkage := profile.facts(record).linkage) and linkage.abi.startswith("linux ")
    ]
    major, minor, *_ = (*max(floors, default=()), 0, 0)
    if not major:
        return
    same = {"major": _is_in(str(major))} | ({"minor": {"op": "Gt", "value": [str(minor - 1)]}} if minor else {})
    newer = {"major": {"op": "Gt", "value": [str(major)]}}
    either = [{"matchFeatures": [{"feature": "kernel.version", "matchExpressions": each}]} for each in (newer, same)]
    yield {"name": "kernel", "matchAny": either}


def _vendors(profile: ImageProfile, reached: list[FileRecord]) -> list[str]:
    code = [gpu for record in reached if (gpu := profile.facts(record).gpu)]
    return [
        vendor
        for vendor, present in (("nvidia", any(gpu.modules for gpu in code)), ("amd", any(gpu.amd for gpu in code)))
        if present
    ]


def _gpu(vendor: str, table: dict[str, Any]) -> Iterator[Rule]:
    device = {"vendor": _is_in(table["pci_vendor"][vendor])}
    yield {"name": f"{vendor}-gpu", "matchFeatures": [{"feature": "pci.device", "matchExpressions": device}]}
    module = {table["kernel_module"][vendor]: {"op": "Exists"}}
    yield {
        "name": f"{vendor}-driver",
        "matchFeatures": [{"feature": "kernel.loadedmodule", "matchExpressions": module}],
    }


def _limits(context: Context, unnamed: list[str]) -> Iterator[str]:
    if unnamed:
        yield f"Node Feature Discovery has no name for {', '.join(unnamed)}, which the image requires"
    for need in needs_of(context):
        if need.what not in _EXPRESSED:
            yield f"a spec of Node Feature Discovery cannot ask for this: {need.what}: {need.needed}"
    if context.image.unreadable:
        yield f"{len(context.image.unreadable)} files could not be read; what they need is not in the spec"


def _flags(name: str, flags: list[str]) -> Rule:
    expressions = {flag: {"op": "Exists"} for flag in flags}
    return {"name": name, "matchFeatures": [{"feature": "cpu.cpuid", "matchExpressions": expressions}]}


def _is_in(value: str) -> dict[str, Any]:
    return {"op": "In", "value": [value]}


def _set(tag: str, rules: list[Rule], weight: int, description: str) -> dict[str, Any]:
    return {"tag": tag, "weight": weight, "description": description, "rules": rules}
