"""The CPU rules: what traps, what is undecided, what refuses, and what is left unused."""

import pytest
from msgspec.structs import replace

from imgcheck.check.cpu import check
from imgcheck.documents.facts import CodeFacts, Linkage, Refusal
from imgcheck.documents.image import Component, ImageConfig
from imgcheck.host.describe import describe_host
from imgcheck.loader.model import close
from tests.check.contexts import KNOWLEDGE, code, context, cpu, findings, outcome, use

SKYLAKE512 = [use("avx"), use("avx2"), use("fma"), use("avx512f", text="vaddps zmm0, zmm1, zmm2"), use("avx512vl")]


def test_skylake_build_on_broadwell_is_an_illegal_instruction() -> None:
    answers = check(context({"/usr/lib/libtf.so": code(*SKYLAKE512)}, cpu("broadwell")))
    (finding,) = findings(answers, "CPU001")
    assert outcome(answers, "CPU001") == "fail"
    assert finding.severity == "fail"
    assert finding.subject == "avx512f"
    assert finding.predicted_error == "Illegal instruction (core dumped)"
    assert "AVX-512F, AVX-512VL" in finding.title
    (evidence,) = finding.evidence
    assert evidence.detail.startswith("vaddps zmm0, zmm1, zmm2 at 0x1234 in main")
    assert evidence.history == "RUN pip install tensorflow-gpu"
    assert evidence.data["features"] == "avx512f avx512vl"
    assert "also.avx512vl" in evidence.data
    assert "-march=x86-64-v3" in finding.remedy


def test_same_build_on_skylake_runs() -> None:
    answers = check(context({"/usr/lib/libtf.so": code(*SKYLAKE512)}, cpu("skylake-avx512")))
    assert not list(answers)
    assert outcome(answers, "CPU001") == outcome(answers, "CPU002") == "ok"


def test_one_finding_per_oldest_missing_extension_and_each_file_in_one() -> None:
    files = {
        "/a": code(use("avx2"), use("bmi2"), use("avx")),
        "/b": code(use("avx"), use("fma")),
        "/c": code(use("bmi2")),
    }
    found = findings(check(context(files, cpu("nehalem"))), "CPU001")
    assert [(finding.subject, [item.path for item in finding.evidence]) for finding in found] == [
        ("avx", ["/a", "/b"]),
        ("bmi2", ["/c"]),
    ]


def test_dispatched_code_does_not_fail() -> None:
    answers = check(context({"/usr/lib/libblas.so": code(use("avx512f", "dispatched"))}, cpu("haswell")))
    assert outcome(answers, "CPU001") == outcome(answers, "CPU002") == "ok"


@pytest.mark.parametrize(("machine", "result"), [("arm", "ok"), ("riscv64", "ok"), ("i386", "unknown")])
def test_code_that_the_host_does_not_execute_need_not_be_known(machine: str, result: str) -> None:
    """Npm's packages bring addons for several machines (`prebuilds/linux-arm`)."""
    files = {"/usr/bin/node": code(), "/app/addon.node": replace(code(machine=machine), isa=None)}
    assert outcome(check(context(files, cpu("haswell"))), "CPU001") == result


def test_what_is_yet_to_be_linked_runs_nowhere() -> None:
    compiled = code(use("avx"), use("fma", "unknown"), type="relocatable")
    answers = check(context({"/usr/bin/node": code(), "/app/build/sqlite3.o": compiled}, cpu("nehalem")))
    assert outcome(answers, "CPU001") == outcome(answers, "CPU002") == "ok"


@pytest.mark.parametrize(("model", "result"), [
    ("nehalem", "ok"), ("sandybridge", "fail"), ("haswell", "ok"), ("broadwell", "ok"),
])  # fmt: skip
def test_what_traps_behind_a_test_for_something_else_traps_on_cpus_that_pass_it(model: str, result: str) -> None:
    """`if (has AVX) use_avx2();` dies of it on Sandy Bridge, which has AVX alone, and never starts it on Nehalem."""
    files = {"/usr/lib/libmis.so": code(use("avx2", given=(("avx", "!avx512f"), ("sse4a",))))}
    assert outcome(check(context(files, cpu(model))), "CPU001") == result


def test_what_cannot_be_told_of_the_kind_of_a_cpu_stays_open() -> None:
    files = {"/usr/lib/libmis.so": code(use("avx512f", given=(("avx512er",),)))}
    assert outcome(check(context(files, cpu("haswell"))), "CPU001") == "ok"
    files = {"/usr/lib/libmis.so": code(use("avx512f", given=(("a_feature_that_no_table_lists",),)))}
    assert outcome(check(context(files, cpu("haswell"))), "CPU002") == "risk"


@pytest.mark.parametrize(("reach", "severity", "result"), [("path", "risk", "risk"), ("unreached", "info", "ok")])
def test_unreached_code_weighs_less(reach: str, severity: str, result: str) -> None:
    answers = check(
        context({"/usr/bin/other": code(use("avx512f"))}, cpu("haswell"), reaches={"/usr/bin/other": reach})
    )
    (finding,) = findings(answers, "CPU001")
    assert finding.severity == severity
    assert outcome(answers, "CPU001") == result


def test_best_reached_file_stands_first_and_decides() -> None:
    files = {"/a": code(use("avx512f")), "/z": code(use("avx512f"))}
    (finding,) = findings(check(context(files, reaches={"/a": "unreached"})), "CPU001")
    assert [item.path for item in finding.evidence] == ["/z", "/a"]
    assert finding.severity == "fail"


def test_undecided_use_is_a_risk_and_never_ok() -> None:
    answers = check(context({"/x": code(use("avx512f", "unknown", reason="a table is filled at run time"))}))
    (finding,) = findings(answers, "CPU002")
    assert finding.severity == outcome(answers, "CPU002") == "risk"
    assert "a table is filled at run time" in finding.why


def test_file_that_traps_anyway_is_not_doubted_too() -> None:
    answers = check(context({"/x": code(use("avx"), use("avx512f", "unknown"))}, cpu("nehalem")))
    assert not findings(answers, "CPU002")


def test_lzcnt_does_not_trap_but_gives_other_results() -> None:
    answers = check(context({"/x": code(use("lzcnt"))}, cpu("sandybridge")))
    (finding,) = findings(answers, "CPU002")
    assert outcome(answers, "CPU001") == "ok"
    assert "results are wrong" in finding.predicted_error


def test_extension_without_an_entry_in_the_tables_is_a_risk() -> None:
    answers = check(context({"/x": code(use("avx1024"))}))
    assert outcome(answers, "CPU002") == "risk"


def test_unknown_cpu_is_unknown_only_where_more_than_the_baseline_is_needed() -> None:
    host = describe_host(KNOWLEDGE, arch="x86_64")
    assert outcome(check(context({"/x": code(use("avx"))}, host)), "CPU001") == "unknown"
    assert outcome(check(context({"/x": code(use("avx", "unknown"))}, host)), "CPU002") == "unknown"
    reasons = {each.rule: each.reason for each in check(context({"/x": code(use("avx"))}, host)).checks}
    assert reasons["CPU002"] == "no undecided use of an extension beyond the baseline"
    assert outcome(check(context({"/x": code(use("sse2"))}, host)), "CPU001") == "ok"
    assert outcome(check(context({"/x": code(use("avx", "dispatched"))}, host)), "CPU001") == "ok"


def test_unreadable_file_that_is_reached_leaves_the_answer_unknown() -> None:
    answers = check(context({"/x": code(error="truncated ELF header")}))
    assert outcome(answers, "CPU001") == "unknown"


def test_machine_whose_code_nobody_analysed_leaves_the_answer_unknown() -> None:
    bare = CodeFacts(1000, Linkage(64, "riscv64", type="executable"))
    assert outcome(check(context({"/app": bare}, platform="riscv64")), "CPU001") == "unknown"
    without_code = CodeFacts(1000, Linkage(64, "x86_64"))
    assert outcome(check(context({"/app": code(type="executable"), "/data.so": without_code})), "CPU001") == "ok"


def test_file_of_a_hwcaps_directory_counts_only_where_the_loader_opens_it() -> None:
    path = "/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libz.so.1"
    assert outcome(check(context({path: code(use("avx2"))}, cpu("nehalem"))), "CPU001") == "ok"
    assert outcome(check(context({path: code(use("avx512f"))}, cpu("haswell"))), "CPU001") == "fail"


def test_variant_that_a_program_chooses_does_not_fail_but_one_that_is_linked_does() -> None:
    path = "/opt/mkl/lib/libmkl_avx512.so"
    files = {"/app": code(type="executable"), path: code(use("avx512f")), "/opt/mkl/lib/libmkl_def.so": code()}
    assert outcome(check(context(files)), "CPU001") == "ok"
    linked = context(files, loaded={"/app": (path,)})
    assert outcome(check(linked), "CPU001") == "fail"


@pytest.mark.parametrize("path", ["/opt/app-haswell", "/usr/lib/libfast_avx2.so"])
def test_name_without_a_sibling_makes_no_variant(path: str) -> None:
    assert outcome(check(context({path: code(use("avx2"))}, cpu("nehalem"))), "CPU001") == "fail"


def test_variant_beside_the_plain_file_is_a_choice() -> None:
    files = {"/usr/lib/libfast_avx2.so.1": code(use("avx2")), "/usr/lib/libfast.so.1": code()}
    assert outcome(check(context(files, cpu("nehalem"))), "CPU001") == "ok"


def test_plain_file_is_what_a_program_opens_where_no_variant_runs() -> None:
    files = {"/x/_swigfaiss_avx2.so": code(use("avx512f")), "/x/_swigfaiss.so": code(use("avx512f"))}
    found = check(context(files))
    assert outcome(found, "CPU001") == "fail"
    assert [each.path for each in found.findings[0].evidence] == ["/x/_swigfaiss.so"]
    files["/x/_swigfaiss_avx2.so"] = code(use("avx2"))
    assert outcome(check(context(files)), "CPU001") == "ok"


def test_note_of_a_variant_that_a_program_chooses_refuses_nothing() -> None:
    libc = {"/lib/libc.so.6": code(soname="libc.so.6", verdef=["GLIBC_2.36"])}
    files = libc | {"/x/libfoo_avx2.so": code(isa_level="x86-64-v3"), "/x/libfoo.so": code()}
    assert outcome(check(context(files, cpu("nehalem"))), "CPU003") == "ok"
    files["/x/libfoo.so"] = code(isa_level="x86-64-v3")
    assert outcome(check(context(files, cpu("nehalem"))), "CPU003") == "fail"


@pytest.mark.parametrize("variant, plain", [
    ("/x/Crypto/Math/_nat_bmi2_adx.abi3.so", "/x/Crypto/Math/_nat.abi3.so"),
    ("/x/Crypto/Hash/_ghash_clmul.abi3.so", "/x/Crypto/Hash/_ghash_portable.abi3.so"),
    ("/x/Crypto/Cipher/_raw_aesni.abi3.so", "/x/Crypto/Cipher/_raw_aes.abi3.so"),
    ("/x/lib/libmix-aesni.so", "/x/lib/libmix.so"),
    ("/x/faiss/_swigfaiss_avx512_spr.so", "/x/faiss/_swigfaiss.so"),
    ("/usr/lib/libggml-cpu-armv8.2_1.so", "/usr/lib/libggml-cpu-armv8.0_1.so"),
    ("/usr/lib/babl-0.1/x86-64-v3-CIE.so", "/usr/lib/babl-0.1/CIE.so"),
])  # fmt: skip
def test_variant_by_several_words_or_a_number_is_a_choice(variant: str, plain: str) -> None:
    assert outcome(check(context({variant: code(use("avx2")), plain: code()}, cpu("nehalem"))), "CPU001") == "ok"
    assert outcome(check(context({variant: code(use("avx2"))}, cpu("nehalem"))), "CPU001") == "fail"


@pytest.mark.parametrize("plain", ["/usr/bin/align-sse2", "/usr/bin/align"])
def test_program_for_some_cpus_beside_one_that_runs_is_left_to_its_users(plain: str) -> None:
    files = {"/usr/bin/align-avx2": code(use("avx2"), type="executable"), plain: code(type="executable")}
    host = cpu("nehalem")
    assert outcome(check(context(files, host, everything=True)), "CPU001") == "ok"
    assert outcome(check(context(files, host, reaches={"/usr/bin/align-avx2": "path"})), "CPU001") == "ok"
    assert outcome(check(context(files, host)), "CPU001") == "fail"


def test_program_for_some_cpus_beside_others_that_die_too_fails() -> None:
    names = {"avx2": "/usr/bin/align-avx2", "avx512f": "/usr/bin/align-avx512"}
    files = {path: code(use(feature), type="executable") for feature, path in names.items()}
    assert outcome(check(context(files, cpu("nehalem"), everything=True)), "CPU001") == "fail"


def test_word_of_a_variant_with_another_remainder_is_no_sibling() -> None:
    files = {"/usr/lib/libfast_avx2.so.1": code(use("avx2")), "/usr/lib/libother.so.1": code()}
    assert outcome(check(context(files, cpu("nehalem"))), "CPU001") == "fail"


def test_programs_for_several_cpus_are_chosen_by_their_user_and_fail() -> None:
    files = {"/usr/bin/gmx_avx512": code(use("avx512f"), type="executable"), "/usr/bin/gmx": code(type="executable")}
    assert outcome(check(context(files)), "CPU001") == "fail"


def test_power9_build_on_power8() -> None:
    files = {"/app": code(use("arch_3_00"), machine="ppc64le")}
    answers = check(context(files, cpu("power8"), platform="ppc64le"))
    (finding,) = findings(answers, "CPU001")
    assert "ISA 3.0 (POWER9)" in finding.title
    assert outcome(check(context(files, cpu("power9"), platform="ppc64le")), "CPU001") == "ok"


def test_lse_atomics_on_the_first_graviton() -> None:
    files = {"/app": code(use("atomics"), machine="aarch64")}
    assert outcome(check(context(files, cpu("graviton"), platform="arm64")), "CPU001") == "fail"
    assert outcome(check(context(files, cpu("graviton2"), platform="arm64")), "CPU001") == "ok"


def test_32_bit_programs_use_the_same_cpu() -> None:
    answers = check(context({"/app": code(use("avx2"), machine="i386")}, cpu("nehalem")))
    assert outcome(answers, "CPU001") == "fail"


def test_tensorflow_says_it_in_its_own_words_too() -> None:
    path = "/usr/lib/python3/site-packages/tensorflow/libtensorflow_framework.so"
    image = context({path: code(use("avx"))}, cpu("nehalem"), components=[Component("TensorFlow", "1.12.0")])
    (finding,) = findings(check(image), "CPU001")
    assert finding.predicted_error.startswith("Illegal instruction (core dumped)")
    assert "was compiled to use AVX instructions, but these aren't available on your machine" in finding.predicted_error


GLIBC = ["GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_PRIVATE"]


def test_isa_note_above_the_cpu_is_refused_by_a_loader_that_reads_it() -> None:
    files = {
        "/lib/libc.so.6": code(soname="libc.so.6", verdef=GLIBC, isa_level="x86-64"),
        "/app/libfast.so": code(isa_level="x86-64-v3"),
    }
    answers = check(context(files, cpu("nehalem")))
    (finding,) = findings(answers, "CPU003")
    assert finding.predicted_error == (
        "error while loading shared libraries: /app/libfast.so: CPU ISA level is lower than required"
    )
    assert "reaches x86-64-v2 only" in finding.why
    assert outcome(check(context(files, cpu("haswell"))), "CPU003") == "ok"


def test_older_glibc_ignores_the_note() -> None:
    files = {
        "/lib/libc.so.6": code(soname="libc.so.6", verdef=["GLIBC_2.31"]),
        "/app/libfast.so": code(isa_level="x86-64-v3"),
    }
    assert outcome(check(context(files, cpu("nehalem"))), "CPU003") == "ok"


def test_a_note_is_compared_by_the_c_library_of_the_process_and_not_by_that_of_a_sysroot() -> None:
    """A newer glibc that nothing loads, as conda's compilers bring one, refuses no program of the image."""
    loader = code(soname="ld-linux-x86-64.so.2", verdef=["GLIBC_PRIVATE"])
    program = code(
        type="executable", needed=["libc.so.6"], interpreter="/lib64/ld-linux-x86-64.so.2", isa_level="x86-64-v3"
    )
    sysroot = "/opt/conda/x86_64-conda-linux-gnu/sysroot/lib64/libc.so.6"
    old, new = (code(soname="libc.so.6", verdef=["GLIBC_2.2.5", node]) for node in ("GLIBC_2.31", "GLIBC_2.36"))
    files = {"/app": program, "/lib64/ld-linux-x86-64.so.2": loader, "/lib64/libc.so.6": old, sysroot: new}
    for config in (ImageConfig(), ImageConfig(command=("/app",))):
        made = context(files, cpu("nehalem"), config=config)
        assert outcome(check(replace(made, closure=close(made.image))), "CPU003") == "ok"
    made = context(files | {"/lib64/libc.so.6": new, sysroot: old}, cpu("nehalem"), config=config)
    (finding,) = findings(check(replace(made, closure=close(made.image))), "CPU003")
    assert "glibc 2.36 compares" in finding.why


def test_what_a_running_program_opens_is_compared_by_the_c_library_of_that_program() -> None:
    libc = {f"/opt/{minor}/libc.so.6": code(soname="libc.so.6", verdef=[f"GLIBC_2.{minor}"]) for minor in (31, 36)}
    for minor, result in ((31, "ok"), (36, "fail")):
        files = {"/app.so": code(isa_level="x86-64-v3"), "/dep.so": code(), **libc}
        made = context(files, cpu("nehalem"), loaded={"/app.so": ("/app.so", "/dep.so")})
        chosen = {("/dep.so", "libc.so.6"): f"/opt/{minor}/libc.so.6"}
        answers = check(replace(made, closure=replace(made.closure, chosen=chosen)))
        assert outcome(answers, "CPU003") == result


def test_c_library_built_for_a_level_stops_every_program() -> None:
    files = {"/lib64/libc.so.6": code(soname="libc.so.6", verdef=GLIBC, isa_level="x86-64-v2")}
    (finding,) = findings(check(context(files, cpu("core2"))), "CPU003")
    assert finding.predicted_error == "Fatal glibc error: CPU does not support x86-64-v2"
    assert not findings(check(context(files, cpu("nehalem"))), "CPU003")


def test_c_library_built_for_power9_on_power8() -> None:
    files = {"/lib64/ld64.so.2": code(use("arch_3_00"), machine="ppc64le", soname="ld64.so.2")}
    (finding,) = findings(check(context(files, cpu("power8"), platform="ppc64le")), "CPU003")
    assert finding.predicted_error == "Fatal glibc error: CPU lacks ISA 3.00 support (POWER9 or later required)"


def test_note_is_unknown_where_the_cpu_is() -> None:
    files = {"/lib64/libc.so.6": code(soname="libc.so.6", verdef=GLIBC, isa_level="x86-64-v2")}
    assert outcome(check(context(files, describe_host(KNOWLEDGE, arch="x86_64"))), "CPU003") == "unknown"


GO_V3 = Refusal("x86-64-v3", "This program can only be run on AMD64 processors with v3 microarchitecture support.")


def test_program_that_refuses_the_cpu_by_itself_prints_its_own_words_and_meets_no_trap() -> None:
    files = {"/usr/bin/caddy": code(use("avx2"), use("sha_ni", "unknown"), refusal=GO_V3)}
    answers = check(context(files, cpu("nehalem")))
    (finding,) = findings(answers, "CPU003")
    assert finding.predicted_error == GO_V3.words
    assert finding.title == "The program itself refuses a CPU below x86-64-v3"
    assert "/usr/bin/caddy was made for x86-64-v3: its start code tests for it" in finding.why
    assert not findings(answers, "CPU001") and not findings(answers, "CPU002")


def test_program_that_asks_for_a_level_runs_where_the_cpu_has_it() -> None:
    answers = check(context({"/usr/bin/caddy": code(use("avx2"), refusal=GO_V3)}, cpu("haswell")))
    assert outcome(answers, "CPU003") == outcome(answers, "CPU001") == "ok"


@pytest.mark.parametrize(
    ("machine", "features", "verdict"),
    [
        ("ivybridge", ("avx", "avx2", "fma"), "fail"),
        ("haswell", ("avx", "avx2", "fma"), "ok"),
        ("haswell", ("avx2", "sha_ni"), "fail"),
        ("icelake", ("avx2", "sha_ni"), "ok"),
    ],
)
def test_a_program_that_names_features_ends_without_one_of_them_whatever_the_level(
    machine: str, features: tuple[str, ...], verdict: str
) -> None:
    named = Refusal("x86-64-v3", "not without [these]", features)
    answers = check(context({"/usr/bin/app": code(use("avx2"), refusal=named)}, cpu(machine)))
    assert outcome(answers, "CPU003") == verdict
    if verdict == "fail":
        (finding,) = findings(answers, "CPU003")
        assert finding.predicted_error == "not without [these]"
        lacked = {"ivybridge": "AVX2, FMA", "haswell": "SHA"}[machine]
        assert finding.title == f"The program itself refuses a CPU without {lacked}"
        assert outcome(answers, "CPU001") == "ok"


def test_program_that_may_refuse_an_unknown_cpu_is_unknown() -> None:
    files = {"/usr/bin/caddy": code(refusal=GO_V3)}
    assert outcome(check(context(files, describe_host(KNOWLEDGE, arch="x86_64"))), "CPU003") == "unknown"


def test_program_that_refuses_the_cpu_but_is_not_run_is_no_failure() -> None:
    files = {"/usr/bin/caddy": code(refusal=GO_V3)}
    answers = check(context(files, cpu("nehalem"), reaches={"/usr/bin/caddy": "path"}))
    assert outcome(answers, "CPU003") == "risk"


TENSORFLOW = "/usr/lib/python3/site-packages/tensorflow/python/_pywrap_tensorflow_internal.so"


def test_baseline_tensorflow_on_broadwell_names_what_it_leaves_unused() -> None:
    files = {TENSORFLOW: code(use("sse2"), vector_functions=40000, baseline="x86-64")}
    answers = check(context(files, cpu("broadwell"), components=[Component("TensorFlow", "1.12.0")]))
    (finding,) = findings(answers, "CPU004")
    assert finding.severity == outcome(answers, "CPU004") == "degraded"
    assert finding.predicted_error == (
        "Your CPU supports instructions that this TensorFlow binary was not compiled to use: SSE4.1 SSE4.2 AVX AVX2 FMA"
    )


def test_libraries_that_leave_the_same_unused_are_one_finding_with_the_hottest_first() -> None:
    plugin = TENSORFLOW.replace("python/_pywrap_tensorflow_internal", "contrib/plugin")
    files = {plugin: code(use("sse2"), vector_functions=2000), TENSORFLOW: code(use("sse2"), vector_functions=40000)}
    answers = check(context(files, cpu("broadwell"), components=[Component("TensorFlow", "1.12.0")]))
    (finding,) = findings(answers, "CPU004")
    assert [evidence.path for evidence in finding.evidence] == [TENSORFLOW, plugin]


def test_broadwell_tensorflow_on_broadwell_leaves_nothing_unused() -> None:
    files = {TENSORFLOW: code(use("avx2"), use("fma"), use("avx"), vector_functions=40000, baseline="x86-64-v3")}
    answers = check(context(files, cpu("broadwell"), components=[Component("TensorFlow", "1.12.0")]))
    assert outcome(answers, "CPU004") == "ok"


def test_hot_library_that_dispatches_leaves_nothing_unused() -> None:
    uses = [use(name, "dispatched") for name in ("sse4_1", "avx", "avx2", "fma", "avx512f")]
    answers = check(context({"/usr/lib/libblas.so": code(*uses, vector_functions=5000)}, cpu("skylake-avx512")))
    assert outcome(answers, "CPU004") == "ok"


def test_library_with_little_vector_code_is_not_worth_a_word() -> None:
    answers = check(context({"/usr/lib/libz.so": code(use("sse2"), vector_functions=50)}, cpu("skylake-avx512")))
    assert outcome(answers, "CPU004") == "not-applicable"


def test_a_codec_that_chooses_has_taken_what_is_of_use_to_it() -> None:
    """Of whole numbers none has a use for FMA."""
    codec = code(use("avx2", "dispatched"), use("avx", "dispatched"), vector_functions=1900, functions=5900)
    assert outcome(check(context({"/usr/lib/libaom.so": codec}, cpu("haswell"))), "CPU004") == "ok"
    for uses in ([use("sse3", "dispatched")], [use("avx", "dispatched")], [use("avx2", "unknown")]):
        some = code(*uses, vector_functions=1900, functions=5900)
        assert outcome(check(context({"/usr/lib/libaom.so": some}, cpu("haswell"))), "CPU004") == "degraded"


@pytest.mark.parametrize(("functions", "expected"), [(400_000, "not-applicable"), (10_000, "degraded")])
def test_a_large_library_with_some_kernels_is_no_vector_library(functions: int, expected: str) -> None:
    library = code(use("sse2"), vector_functions=3000, functions=functions, baseline="x86-64")
    answers = check(context({"/usr/lib/libtriton.so": library}, cpu("haswell")))
    assert outcome(answers, "CPU004") == expected


def test_unreached_hot_library_is_not_worth_a_word() -> None:
    image = context({"/x": code(vector_functions=5000)}, reaches={"/x": "unreached"})
    assert outcome(check(image), "CPU004") == "not-applicable"


def test_the_reason_tells_of_the_file_that_it_names_alone() -> None:
    files = {"/usr/bin/job": code(use("avx")), "/usr/bin/other": code(use("avx"), use("avx512f"))}
    (finding,) = findings(check(context(files, cpu("nehalem"))), "CPU001")
    assert "AVX-512F" in finding.title
    assert "/usr/bin/job was compiled for CPUs with AVX and" in finding.why
