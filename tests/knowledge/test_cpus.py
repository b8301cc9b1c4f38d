"""CPU names and features: what people type is found, and what a name has agrees with the compilers."""

import itertools
import json
import re
import subprocess
import tomllib
import tracemalloc

import archspec.cpu
import pytest

from imgcheck.errors import KnowledgeError, UsageError
from imgcheck.knowledge import Knowledge, cpus, microarchitectures
from tests.tools import CHECKOUT, need

KNOWLEDGE = Knowledge()

# Spelling of gcc's -m option where it is not the feature's own name.
_OPTIONS = {
    "sse4_1": "sse4.1", "sse4_2": "sse4.2", "lahf_lm": "sahf", "pclmulqdq": "pclmul", "rdrand": "rdrnd",
    "sha_ni": "sha", "avx_vnni": "avxvnni", "bmi1": "bmi", "amx_tile": "amx-tile", "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
}  # fmt: skip
# gcc leaves AES out up to Broadwell, since some products for desktops have it switched off.
_OURS_ALONE = {
    name: {"aes"} for name in ("westmere", "sandybridge", "ivybridge", "haswell", "broadwell", "mic_knl", "knm")
}
# gcc 12 grants VP2INTERSECT to Sapphire Rapids, and XSAVE to Bobcat, which neither has.
_GCC_ALONE = {"sapphirerapids": {"avx512_vp2intersect"}, "btver1": {"xsave"}, "neoverse_n2": {"rng"}}
# VIA's CPUs never stood in a cluster.
_IGNORED = re.compile(r"native|eden|nano")


def _gcc_names() -> list[str]:
    done = subprocess.run(
        [need("gcc"), "-march=nothing", "-c", "-x", "c", "/dev/null", "-o", "/dev/null"],
        capture_output=True,
        text=True,
        env={"LC_ALL": "C"},
    )
    listed = re.search(r"valid arguments to .-march=. switch are: (.*?)[;\n]", done.stderr)
    assert listed
    return [name for name in listed[1].split() if not _IGNORED.match(name)]


def _option(feature: str) -> str:
    plain = feature.replace("avx512_", "avx512") if feature.startswith("avx512") else feature
    return "-m" + _OPTIONS.get(feature, plain)


def test_every_march_of_gcc_names_a_cpu_with_the_features_that_gcc_gives_it() -> None:
    checked = 0
    for name in _gcc_names():
        cpu = cpus.resolve(KNOWLEDGE, name)
        help_text = subprocess.run(
            [need("gcc"), f"-march={name}", "-m64", "-Q", "--help=target"], capture_output=True, text=True, check=True
        ).stdout
        listed = dict(re.findall(r"^\s+(-m\S+)\s+\[(enabled|disabled)\]", help_text, re.MULTILINE))
        known = {feature for feature in cpus.features(KNOWLEDGE, "x86_64") if _option(feature) in listed}
        gcc = {feature for feature in known if listed[_option(feature)] == "enabled"}
        assert gcc - cpu.features <= _GCC_ALONE.get(cpu.microarchitecture, set()), name
        assert cpu.features & known - gcc <= _OURS_ALONE.get(cpu.microarchitecture, set()), name
        checked += len(known) > 40
    assert checked > 30


_MACROS = {
    "ATOMICS": "atomics", "SVE": "sve", "SVE2": "sve2", "DOTPROD": "asimddp", "FP16_VECTOR_ARITHMETIC": "asimdhp",
    "CRC32": "crc32", "BF16_VECTOR_ARITHMETIC": "bf16", "MATMUL_INT8": "i8mm", "QRDMX": "asimdrdm", "AES": "aes",
    "SHA2": "sha2", "JCVT": "jscvt", "COMPLEX": "fcma", "RNG": "rng", "SVE_MATMUL_INT8": "svei8mm",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", ["cortex-a72", "neoverse-n1", "neoverse-v1", "neoverse-n2", "a64fx", "thunderx2t99", "ampere1"]
)
def test_arm_cpus_have_what_gcc_compiles_for_them(name: str) -> None:
    command = [need("aarch64-linux-gnu-gcc"), f"-mcpu={name}", "-dM", "-E", "-x", "c", "/dev/null"]
    macros = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    gcc = {_MACROS[macro] for macro in re.findall(r"__ARM_FEATURE_(\w+) 1", macros) if macro in _MACROS}
    cpu = cpus.resolve(KNOWLEDGE, name)
    assert cpu.architecture == "aarch64"
    assert gcc
    assert gcc - cpu.features <= _GCC_ALONE.get(cpu.microarchitecture, set())


@pytest.mark.parametrize(
    ("name", "feature"), [("power8", "arch_2_07"), ("power9", "arch_3_00"), ("power10", "arch_3_1")]
)
def test_power_cpus_have_their_isa_and_the_older_ones(name: str, feature: str) -> None:
    order = ["arch_2_07", "arch_3_00", "arch_3_1"]
    cpu = cpus.resolve(KNOWLEDGE, name.upper())
    assert cpu.architecture == "ppc64le"
    assert [item for item in order if item in cpu.features] == order[: order.index(feature) + 1]


@pytest.mark.parametrize(
    ("name", "microarchitecture"),
    [
        ("Haswell", "haswell"),
        ("skylake-avx512", "skylake_avx512"),
        ("x86-64-v3", "x86_64_v3"),
        ("E5-2630 v3", "haswell"),
        ("Xeon E7-4830 v3", "haswell"),
        ("Intel(R) Xeon(R) CPU E7-4830 v3 @ 2.10GHz", "haswell"),
        ("Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz", "sandybridge"),
        ("Intel(R) Xeon(R) CPU E5-2650 v2 @ 2.60GHz", "ivybridge"),
        ("Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", "broadwell"),
        ("Intel(R) Xeon(R) CPU X5650 @ 2.67GHz", "westmere"),
        ("Intel(R) Xeon(R) CPU X5550 @ 2.67GHz", "nehalem"),
        ("Gold 6148", "skylake_avx512"),
        ("Intel(R) Xeon(R) Gold 6248R CPU @ 3.00GHz", "cascadelake"),
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", "icelake"),
        ("Intel(R) Xeon(R) Platinum 8380H CPU @ 2.90GHz", "cooperlake"),
        ("Intel(R) Xeon(R) Platinum 8480+", "sapphirerapids"),
        ("Intel(R) Xeon(R) Platinum 8592+", "sapphirerapids"),
        ("Intel Xeon Processor (Skylake, IBRS)", "skylake_avx512"),
        ("Intel Core Processor (Haswell, no TSX)", "haswell"),
        ("Intel(R) Core(TM) i7-6950X CPU @ 3.00GHz", "broadwell"),
        ("Intel(R) Core(TM) i7-5960X CPU @ 3.00GHz", "haswell"),
        ("Intel(R) Core(TM) i7-4960X CPU @ 3.60GHz", "ivybridge"),
        ("Intel(R) Core(TM) i7-3930K CPU @ 3.20GHz", "sandybridge"),
        ("Intel(R) Core(TM) i7-4770K CPU @ 3.50GHz", "haswell"),
        ("Intel(R) Core(TM) i7-6700K CPU @ 4.00GHz", "skylake"),
        ("AMD Ryzen 7 5700U with Radeon Graphics", "zen2"),
        ("AMD Ryzen 7 5800U with Radeon Graphics", "zen3"),
        ("AMD EPYC 7551 32-Core Processor", "zen"),
        ("EPYC 7742", "zen2"),
        ("AMD EPYC 7H12 64-Core Processor", "zen2"),
        ("AMD EPYC 7763 64-Core Processor", "zen3"),
        ("AMD EPYC 9654 96-Core Processor", "zen4"),
        ("AMD EPYC 9575F 64-Core Processor", "zen5"),
        ("AMD EPYC-Milan Processor", "zen3"),
        ("POWER8NVL (raw), altivec supported", "power8le"),
        ("POWER9, altivec supported", "power9le"),
        ("Graviton3", "neoverse_v1"),
    ],
)
def test_names_that_people_type_and_kernels_print(name: str, microarchitecture: str) -> None:
    assert cpus.resolve(KNOWLEDGE, name).microarchitecture == microarchitecture


def test_the_table_is_read_as_archspec_reads_it() -> None:
    for name, theirs in archspec.cpu.TARGETS.items():
        ours = microarchitectures.targets()[name]
        assert (ours.vendor, ours.part) == (theirs.vendor, theirs.cpu_part)
        assert theirs.features - {"sse3"} == set(ours.features) - {"sse3"}  # which it adds wherever SSSE3 is
        assert [above.name for above in theirs.ancestors] == list(microarchitectures.ancestors(name))
        assert theirs.family.name == microarchitectures.architecture(name)


def test_holes_of_archspec_are_mended() -> None:
    has = {name: cpus.resolve(KNOWLEDGE, name).features for name in ("core2", "zen4", "sapphirerapids", "power8")}
    assert "cx16" in has["core2"]
    assert {"rdrand", "adx", "sha_ni"} <= has["zen4"]
    assert "avx512_fp16" in has["sapphirerapids"]
    assert has["power8"]
    assert "sse3" in cpus.resolve(KNOWLEDGE, "x86-64-v2").features


@pytest.mark.parametrize("name", ["haswel", "skylakee 512", "zenn3", "sapphire", "Haswell EP node"])
def test_unknown_names_come_with_near_ones(name: str) -> None:
    with pytest.raises(UsageError) as raised:
        cpus.resolve(KNOWLEDGE, name)
    assert "did you mean" in raised.value.hint


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Cascade Lake", "cascadelake"), ("Cannon Lake", "cannonlake"), ("Cooper Lake", "cooperlake"),
        ("zen 3", "zen3"), ("Zen-4", "zen4"), ("POWER 9", "power9"), ("sky lake 512", "skylake_avx512"),
        ("x86_64-v3", "x86_64_v3"), ("Ice Lake", "icelake"),
    ],
)  # fmt: skip
def test_blanks_and_dashes_make_no_difference(name: str, meant: str) -> None:
    assert cpus.resolve(KNOWLEDGE, name) == cpus.resolve(KNOWLEDGE, meant)


@pytest.mark.parametrize("name", ["xeon", "xeon e5", "intel", "Intel Xeon", "amd", "none", "ryzen"])
def test_a_make_without_a_model_is_no_ground_for_a_guess(name: str) -> None:
    with pytest.raises(UsageError) as raised:
        cpus.resolve(KNOWLEDGE, name)
    assert "did you mean" not in raised.value.hint
    assert "name a microarchitecture" in raised.value.hint


def test_who_says_skylake_is_told_of_the_server_cpu() -> None:
    assert "skylake_avx512" in cpus.remark(KNOWLEDGE, "skylake")
    assert cpus.remark(KNOWLEDGE, "haswell") == ""


@pytest.mark.parametrize("name", ["", "x", "()[*", "a" * 10000, "AMD"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        cpus.resolve(KNOWLEDGE, name)


@pytest.mark.parametrize(
    ("name", "level"),
    [("core2", "x86-64"), ("nehalem", "x86-64-v2"), ("ivybridge", "x86-64-v2"), ("haswell", "x86-64-v3"),
     ("zen", "x86-64-v3"), ("skylake-avx512", "x86-64-v4"), ("zen4", "x86-64-v4"), ("knl", "x86-64-v3")],
)  # fmt: skip
def test_levels(name: str, level: str) -> None:
    assert cpus.level_of(KNOWLEDGE, cpus.resolve(KNOWLEDGE, name).features) == level


def test_levels_grow() -> None:
    sets = [cpus.level_features(KNOWLEDGE, level) for level in cpus.LEVELS]
    assert all(lower < higher for lower, higher in itertools.pairwise(sets))


def test_kernel_spellings_become_ids() -> None:
    assert {"sse3", "lzcnt", "sse2"} <= cpus.from_flags(KNOWLEDGE, "x86_64", ["pni", "abm"])
    assert "lzcnt" not in cpus.from_flags(KNOWLEDGE, "x86_64", ["bmi1"])


def test_every_feature_that_the_engine_reports_has_an_entry() -> None:
    rules = tomllib.loads((CHECKOUT / "rules/analysis/isa.toml").read_text())
    reported = set(rules["x86"]["features"].values())
    assert reported - cpus.features(KNOWLEDGE, "x86_64").keys() == set()


def test_features_of_microarchitectures_all_have_an_entry() -> None:
    supplements = KNOWLEDGE.entries("cpus", "microarchitecture", cpus.Microarchitecture)
    for entry in supplements:
        cpu = cpus.named(KNOWLEDGE, entry.id)
        assert cpu is not None, entry.id
        table = cpus.features(KNOWLEDGE, cpu.architecture)
        assert {*entry.adds, *entry.removes} <= table.keys(), entry.id


def test_every_product_names_a_known_microarchitecture_by_a_valid_pattern() -> None:
    for product in KNOWLEDGE.entries("cpus", "product", cpus.Product):
        re.compile(product.pattern)
        assert cpus.named(KNOWLEDGE, product.microarchitecture), product.id


def test_display_names_in_table_order() -> None:
    assert cpus.display(KNOWLEDGE, "x86_64", ["avx512f", "avx", "sse4_2", "new"]) == "SSE4.2, AVX, AVX-512F, new"


@pytest.mark.parametrize(
    ("path", "features"),
    [
        ("/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libz.so.1", "avx2"),
        ("/usr/lib64/haswell/libblas.so", "avx2"),
        ("/usr/lib64/haswell/avx512_1/libblas.so", "avx512f"),
        ("/usr/lib/x86_64-linux-gnu/tls/haswell/libblas.so", "avx2"),
        ("/usr/lib/haswell/plugins/libblas.so", "avx2"),
        ("/usr/lib/blas/haswell/libblas.so", None),
        ("/usr/share/x86-64-v3/libz.so.1", None),
        ("/opt/haswell/lib/libblas.so", None),
        ("/usr/lib/libz.so.1", None),
    ],
)
def test_directories_that_the_loader_opens_where_the_cpu_fits(path: str, features: str | None) -> None:
    guard = cpus.guarded_by(KNOWLEDGE, "x86_64", path)
    assert guard is None if features is None else features in guard


def test_directories_of_images_do_not_stay_in_memory() -> None:
    tracemalloc.start()
    for number in range(20_000):
        assert cpus.guarded_by(KNOWLEDGE, "x86_64", f"/opt/{'x' * 500}{number}/libz.so") is None
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 5 << 20


def test_site_rules_add_a_cpu(tmp_path) -> None:
    (tmp_path / "cpus").mkdir()
    entry = {"id": "site_cpu", "parent": "zen3", "adds": ["avx512f"], "sources": ["site"], "names": ["our node"]}
    lines = [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
    (tmp_path / "cpus/site.toml").write_text("[[microarchitecture]]\n" + "\n".join(lines))
    cpu = cpus.resolve(Knowledge((tmp_path,)), "Our Node")
    assert "avx512f" in cpu.features
    assert "avx2" in cpu.features


def test_a_pattern_that_is_none_is_an_error_that_names_file_and_entry(tmp_path) -> None:
    (tmp_path / "cpus").mkdir()
    entry = {"id": "ours", "pattern": "Xeon (", "microarchitecture": "zen3", "source": "site"}
    lines = [f"{name} = {json.dumps(value)}" for name, value in entry.items()]
    (tmp_path / "cpus/site.toml").write_text("[[product]]\n" + "\n".join(lines))
    with pytest.raises(KnowledgeError, match=r"cpus/site\.toml: ours: .*no regular expression"):
        cpus.product_of(Knowledge((tmp_path,)), "no such CPU")
