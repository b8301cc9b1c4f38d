"""The spec for Node Feature Discovery: what its reader expects, nothing that is not known, and a word for the rest."""

import json
from pathlib import Path

import pytest

from imgcheck.attach.nfd import ARTIFACT_TYPE, BLOB_TYPE, Spec, artifact_of, spec_of
from imgcheck.cli import main
from imgcheck.documents.facts import CodeFacts, GpuCode, GpuModule, Isa, IsaUse, Linkage
from imgcheck.documents.image import FileRecord, ImageConfig, ImageProfile, Platform, TreeIndex
from imgcheck.knowledge import Knowledge
from imgcheck.sources.open import open_image
from imgcheck.sources.options import SourceOptions
from tests.images import File, ImageBuilder
from tests.peers import Registry
from tests.tools import compile_c

OPERATORS = frozenset(
    ("In", "NotIn", "InRegexp", "Exists", "DoesNotExist", "Gt", "Ge", "Lt", "Le", "GtLt", "GeLe", "IsTrue", "IsFalse")
)


def profile(architecture: str = "amd64", machine: str = "x86_64", gpu: GpuCode | None = None, **linkage: str):
    """An image whose one file is run, with the features named in `linkage["required"]`."""
    required = linkage.pop("required", "").split()
    uses = tuple(IsaUse(feature, "required", "it is run") for feature in required)
    uses += (IsaUse("avx512f", "dispatched", "behind a guard"),)
    facts = CodeFacts(1, Linkage(64, machine, type="executable", **linkage), Isa(uses), gpu)
    return ImageProfile(
        "1.0", "x", Platform("linux", architecture), ImageConfig(command=("/app",)), (),
        (FileRecord("/app", "0" * 64, 0, True),), {"0" * 64: facts}, TreeIndex(), manifest_digest="sha256:" + "2" * 64,
    )  # fmt: skip


def flags(spec: Spec, tag: str = "required") -> set[str]:
    (rules,) = (each["rules"] for each in spec.document["compatibilities"] if each["tag"] == tag)
    return {
        flag
        for rule in rules
        for term in rule.get("matchFeatures", [])
        if term["feature"] == "cpu.cpuid"
        for flag in term["matchExpressions"]
    }


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge()


def test_required_features_have_the_names_of_the_reader_and_guarded_ones_are_left_out(knowledge: Knowledge) -> None:
    spec = spec_of(profile(required="avx2 fma sse4_1 aes"), knowledge)
    assert flags(spec) == {"SSE2", "AVX2", "FMA3", "SSE4", "AESNI"}


def test_levels_are_spelled_out_for_readers_that_know_none(knowledge: Knowledge) -> None:
    # The C library compares its own mark with the CPU.
    spec = spec_of(profile(isa_level="x86-64-v3", soname="libc.so.6"), knowledge)
    assert flags(spec) >= {"AVX2", "BMI2", "FMA3", "MOVBE", "SSE42", "CX16"}
    assert not any(flag.startswith("X86_64") for flag in flags(spec))


@pytest.mark.parametrize(
    ("architecture", "machine", "required", "expected"),
    [("arm64", "aarch64", "sve atomics", {"ASIMD", "SVE", "ATOMICS"}),
     ("ppc64le", "ppc64le", "arch_3_00", {"PPCLE", "ARCH_3_00"})],
)  # fmt: skip
def test_other_architectures_have_their_own_names(
    knowledge: Knowledge, architecture: str, machine: str, required: str, expected: set[str]
) -> None:
    assert flags(spec_of(profile(architecture, machine, required=required), knowledge)) == expected


def test_feature_without_a_name_is_told_and_not_invented(knowledge: Knowledge) -> None:
    spec = spec_of(profile(required="avx2 raoint"), knowledge)
    assert flags(spec) == {"SSE2", "AVX2"}
    assert "Node Feature Discovery has no name for raoint, which the image requires" in spec.limits


def test_kernel_floor_is_a_newer_major_or_the_same_with_a_newer_minor(knowledge: Knowledge) -> None:
    spec = spec_of(profile(abi="linux 4.15.0"), knowledge)
    (kernel,) = (rule for rule in spec.document["compatibilities"][0]["rules"] if rule["name"] == "kernel")
    newer, same = (each["matchFeatures"][0]["matchExpressions"] for each in kernel["matchAny"])
    assert newer == {"major": {"op": "Gt", "value": ["4"]}}
    assert same == {"major": {"op": "In", "value": ["4"]}, "minor": {"op": "Gt", "value": ["14"]}}


def test_gpu_is_a_second_set_since_most_images_start_without_one(knowledge: Knowledge) -> None:
    gpu = GpuCode((GpuModule(1, sass=("70",)),), cudart="9.0")
    spec = spec_of(profile(gpu=gpu), knowledge)
    assert [(each["tag"], each["weight"]) for each in spec.document["compatibilities"]] == [
        ("required", 1), ("with-gpu", 2),
    ]  # fmt: skip
    names = [rule["name"] for rule in spec.document["compatibilities"][1]["rules"]]
    assert names[-2:] == ["nvidia-gpu", "nvidia-driver"]
    assert any("GPU driver: 384.81 or newer" in limit for limit in spec.limits)
    assert not any("nvidia" in rule["name"] for rule in spec.document["compatibilities"][0]["rules"])


def test_every_rule_has_the_form_that_the_reader_types(knowledge: Knowledge) -> None:
    spec = spec_of(profile(required="avx2", abi="linux 3.2.0", gpu=GpuCode((GpuModule(1, sass=("70",)),))), knowledge)
    assert set(spec.document) == {"version", "compatibilities"} and spec.document["version"] == "v1alpha1"
    for each in spec.document["compatibilities"]:
        assert set(each) <= {"rules", "weight", "tag", "description"}
        for rule in each["rules"]:
            assert set(rule) <= {"name", "vars", "varsTemplate", "matchFeatures", "matchAny"}
            terms = rule.get("matchFeatures", []) + [
                term for any_of in rule.get("matchAny", []) for term in any_of["matchFeatures"]
            ]
            assert terms
            for term in terms:
                assert set(term) == {"feature", "matchExpressions"}
                for expression in term["matchExpressions"].values():
                    assert expression["op"] in OPERATORS
                    assert all(isinstance(value, str) for value in expression.get("value", []))


def test_json_of_the_artifact_is_yaml_of_the_reader(knowledge: Knowledge) -> None:
    artifact = artifact_of(spec_of(profile(required="avx2"), knowledge))
    assert (artifact.type, artifact.blob_type) == (ARTIFACT_TYPE, BLOB_TYPE)
    assert json.loads(artifact.data)["compatibilities"]
    # Tabs alone would keep a YAML reader from taking JSON.
    assert b"\t" not in artifact.data


@pytest.mark.slow
def test_spec_is_attached_where_the_reader_looks_for_it(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = compile_c("int main(void) { return 0; }", "-O1", out="program").read_bytes()
    layout = ImageBuilder(command=("/app",)).layer({"app": File(program, 0o755)}).write(tmp_path / "layout")
    image = registry.push(f"oci:{layout}:latest", "attach/nfd:1")
    assert main(["attach", image, "--nfd", "--plain-http", "--no-store"]) == 0
    capsys.readouterr()
    assert main(["profile", image, "--export", "nfd", "--plain-http", "--no-store"]) == 0
    exported = capsys.readouterr().out
    with open_image(image, SourceOptions(plain_http=True)) as found:
        (artifact,) = found.attached(ARTIFACT_TYPE)
        assert artifact.created and artifact.read(1 << 20).decode() == exported
