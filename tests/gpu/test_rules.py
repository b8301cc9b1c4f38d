"""GPU001 to GPU014: each rule where it fires and where it does not."""

import pytest
from msgspec.structs import replace

from imgcheck.check.gpu import check
from imgcheck.check.gpu_code import capability_of, sass_fits
from imgcheck.check.gpu_minimum import minimum
from imgcheck.check.needs import with_minimum
from imgcheck.documents import ImageProfile, decode, encode
from imgcheck.documents.facts import UNREAD, CodeFacts, ForwardCompat, GpuCode, GpuModule, GpuObject, Linkage
from imgcheck.documents.host import Driver, Gpu, HostLibrary, HostProfile, InstalledRuntime, absent, known
from imgcheck.documents.image import Component, Problem
from imgcheck.documents.report import Finding
from imgcheck.host.describe import describe_host
from imgcheck.knowledge.types import RuntimeChange
from tests.gpu_files import (
    A100,
    GEFORCE,
    INJECTING,
    K80,
    KNOWLEDGE,
    PLAIN,
    V100,
    cell,
    gpu_file,
    host,
    image,
    libcuda,
    module,
)

TF = Component("TensorFlow", "1.12.0", minimum_capability="3.5", built_for=("3.5", "7.0"))
TORCH = Component("PyTorch", "2.5.1")
OWN = "/usr/lib/x86_64-linux-gnu/libcuda.so.390.30"
KEPLER = module(["37"])


def outcomes(*arguments, **options) -> dict[str, str]:
    return {result.rule: result.outcome for result in check(cell(*arguments, **options)).checks}


def finding(rule: str, *arguments, **options) -> Finding:
    (found,) = (each for each in check(cell(*arguments, **options)).findings if each.rule == rule)
    return found


ALL = [f"GPU{number:03}" for number in range(1, 16)]


def test_an_image_without_gpu_code_has_no_gpu_rules_to_meet() -> None:
    plain = image({"/usr/bin/true": CodeFacts(1)})
    assert outcomes(plain, host()) == dict.fromkeys(ALL, "not-applicable")


def test_every_rule_answers_once() -> None:
    assert sorted(outcomes(image({"/app": gpu_file(KEPLER)}), host(K80, driver="396.44"))) == ALL


def test_findings_hold_no_unfilled_placeholder() -> None:
    profile = image(
        {OWN: libcuda("9.1"), "/app": gpu_file(module(["90"], ["90@8.4"]), cudart="12.4")}, components=[TF, TORCH]
    )
    for context in (
        cell(profile, host(K80, driver="396.44"), PLAIN, opens=OWN),
        cell(profile, host(), PLAIN, opens=None),
    ):
        found = list(check(context).findings)
        assert found
        for each in found:
            assert "{" not in each.title + each.predicted_error + each.why + each.remedy


# GPU001


def bundled(components=()) -> tuple:
    return image({OWN: libcuda("9.1"), "/app": gpu_file(KEPLER, cudart="9.0")}, components=components)


def test_bundled_libcuda_of_another_driver_fails_with_tensorflows_words() -> None:
    found = finding("GPU001", bundled([TF]), host(K80, driver="396.44"), PLAIN, opens=OWN)
    assert found.severity == "fail"
    assert (
        "kernel version 396.44.0 does not match DSO version 390.30.0 -- cannot find working devices"
        in found.predicted_error
    )
    assert found.evidence[0].path == OWN


def test_bundled_libcuda_of_another_driver_without_tensorflow() -> None:
    assert "API mismatch" in finding("GPU001", bundled(), host(K80, driver="396.44"), PLAIN, opens=OWN).predicted_error
    newer = image({"/usr/lib/libcuda.so.550.54.14": libcuda("12.4"), "/app": gpu_file(KEPLER)})
    found = finding("GPU001", newer, host(K80, driver="470.82.01"), PLAIN, opens="/usr/lib/libcuda.so.550.54.14")
    assert "803" in found.predicted_error


def test_bundled_libcuda_of_the_same_driver_is_fine() -> None:
    assert outcomes(bundled(), host(K80, driver="390.30"), PLAIN, opens=OWN)["GPU001"] == "ok"


def test_bundled_libcuda_of_the_branch_that_is_all_that_is_known_of_the_host_is_undecided() -> None:
    assert outcomes(bundled(), host(K80, driver="390"), PLAIN, opens=OWN)["GPU001"] == "unknown"
    assert outcomes(bundled(), host(K80, driver="396"), PLAIN, opens=OWN)["GPU001"] == "fail"


def test_injected_libcuda_hides_the_bundled_one() -> None:
    assert outcomes(bundled(), host(K80, driver="396.44"))["GPU001"] == "ok"


def test_driver_updated_but_module_not_reloaded() -> None:
    machine = host(K80, driver="396.44", userland="410.48")
    assert finding("GPU001", bundled(), machine).severity == "fail"


def test_bundled_libcuda_on_an_unknown_driver_is_unknown() -> None:
    machine = HostProfile("1.0", "host", gpus=known((K80,), "test"))
    assert outcomes(bundled(), machine, PLAIN, opens=OWN)["GPU001"] == "unknown"


# GPU002


@pytest.mark.parametrize(
    ("runtime", "driver", "outcome"),
    [
        ("9.0", "384.81", "ok"), ("9.0", "375.51", "fail"), ("9.2", "390.30", "fail"), ("10.0", "410.48", "ok"),
        ("11.8", "450.80.02", "ok"), ("11.8", "440.33", "fail"), ("11.8", "450.51.06", "risk"),
        ("12.4", "525.60.13", "ok"), ("12.4", "520.61.05", "fail"), ("13.0", "580.65.06", "ok"),
        ("13.1", "575.57.08", "fail"), ("12.4", "525", "unknown"), ("12.4", "535", "ok"), ("12.4", "520", "fail"),
    ],
)  # fmt: skip
def test_cuda_runtime_against_driver(runtime: str, driver: str, outcome: str) -> None:
    profile = image({"/app": gpu_file(module(["70"]), cudart=runtime)})
    assert outcomes(profile, host(V100, driver=driver))["GPU002"] == outcome


def test_driver_that_its_documentation_finds_too_old_is_told_of_drivers_and_not_of_cuda() -> None:
    found = finding("GPU002", image({"/app": gpu_file(cudart="11.8")}), host(V100, driver="450.51.06"))
    assert "asks for driver 450.80.02 or newer" in found.why
    assert "built for CUDA 10.x or older" in found.remedy


def test_runtime_version_from_the_soname_that_is_needed() -> None:
    user = gpu_file(module(["37"]), needed=["libcudart.so.9.0"])
    profile = image({"/app": user, "/usr/lib/libcudart.so.9.0": gpu_file()})
    found = finding("GPU002", profile, host(K80, driver="375.51"))
    assert "CUDA driver version is insufficient for CUDA runtime version" in found.predicted_error
    assert "384.81" in found.remedy


def test_a_runtime_that_no_file_of_the_image_is_demands_no_driver() -> None:
    """Bitsandbytes has a library for each CUDA, and loads the one for PyTorch's: the others could not be loaded."""
    profile = image(
        {
            "/b/libbitsandbytes_cuda118.so": gpu_file(module(["70"]), needed=["libcudart.so.11.0"]),
            "/b/libbitsandbytes_cuda130.so": gpu_file(module(["70"]), needed=["libcudart.so.13"]),
            "/lib/libcudart.so.11.0": gpu_file(cudart="11.8"),
        }
    )
    assert outcomes(profile, host(V100, driver="535.104.05"))["GPU002"] == "ok"
    driver = next(statement for statement in minimum(profile, KNOWLEDGE) if statement[0] == "GPU driver")
    assert driver[1] == "450.80.02 or newer"


def test_pytorch_says_it_in_its_own_words() -> None:
    profile = image({"/app": gpu_file(module(["70"]), cudart="12.4")}, components=[TORCH])
    assert "too old (found version 11040)" in finding("GPU002", profile, host(V100, driver="470.82.01")).predicted_error


def test_runtime_newer_than_all_known_is_judged_by_its_major_version() -> None:
    profile = image({"/app": gpu_file(module(["70"]), cudart="13.9")})
    assert outcomes(profile, host(A100, driver="580.65.06"))["GPU002"] == "ok"


def test_unreached_files_inform_only() -> None:
    profile = image({"/app": gpu_file(module(["37"]), cudart="9.2")})
    machine = host(K80, driver="384.81")
    assert outcomes(profile, machine, reach="unreached")["GPU002"] == "ok"
    assert finding("GPU002", profile, machine, reach="unreached").severity == "info"
    assert finding("GPU002", profile, machine, reach="path").severity == "risk"


def test_of_what_nothing_reaches_no_question_stays_open() -> None:
    profile = image({"/app": gpu_file(module(["37"]), cudart="9.2")})
    unknown = HostProfile("1.0", "host", driver=host(K80, driver="396.44").driver)
    assert outcomes(profile, unknown)["GPU003"] == "unknown"
    unreached = outcomes(profile, unknown, reach="unreached")
    assert "unknown" not in unreached.values()
    assert "unknown" in outcomes(profile, unknown, reach="unreached", require_gpu=True).values()


def test_a_file_that_wants_a_gpu_by_a_runtime_that_is_not_there_is_evidence_too() -> None:
    profile = image({"/opt/libp.so": gpu_file(needed=["libcudart.so.12"])})
    machine = host(V100, driver="535.104.05")
    assert finding("GPU007", profile, machine, PLAIN, opens=None).severity == "fail"
    assert finding("GPU007", profile, machine, PLAIN, opens=None, reach="unreached").severity == "info"
    old = finding("GPU012", profile, host(K80, driver="535.104.05"), reach="unreached")
    assert (old.severity, [each.path for each in old.evidence]) == ("info", ["/opt/libp.so"])


@pytest.mark.parametrize(
    ("driver", "cuda", "isa", "function", "outcome"),
    [
        ("540.4.0", "12.2", "8.2", "cuGraphAddNode", "ok"), ("540.4.0", "12.3", "8.3", "cuGraphAddNode_v2", "unknown"),
        ("540.4.0", "12.4", "8.4", "cuCtxFromGreenCtx", "fail"), ("999.1", "12.2", "8.2", "cuGraphAddNode", "ok"),
        ("999.1", "99.0", "99.0", "", "unknown"), ("545.23.06", "12.4", "8.4", "cuCtxFromGreenCtx", "fail"),
    ],
)  # fmt: skip
def test_of_a_driver_whose_branch_no_table_has_what_holds_for_both_neighbours_is_certain(
    driver: str, cuda: str, isa: str, function: str, outcome: str
) -> None:
    """540, of Jetson, is between CUDA 12.2 and 12.3; of what is newer than all that are known nothing is the most."""
    file = gpu_file(module([], [f"70@{isa}"]), functions=[function], flags=["now"])
    found = outcomes(image({"/app": file}, [f"NVIDIA_REQUIRE_CUDA=cuda>={cuda}"]), host(A100, driver=driver))
    told = {found[rule] for rule in ("GPU005", "GPU008", "GPU009")[: 3 if function else 2]}
    assert told == {outcome}


@pytest.mark.parametrize(("runtime", "outcome"), [("12.8", "ok"), ("13.0", "unknown"), ("14.0", "unknown")])
def test_a_runtime_on_a_driver_whose_branch_no_table_has(runtime: str, outcome: str) -> None:
    """The branch 578 is between CUDA 12.9 and 13.0."""
    profile = image({"/app": gpu_file(module(["70"]), cudart=runtime)})
    driver = "578.10" if runtime != "14.0" else "999.1"
    assert outcomes(profile, host(V100, driver=driver))["GPU002"] == outcome
    assert outcomes(profile, host(V100, driver="575.57.08"))["GPU002"] == ("ok" if outcome == "ok" else "fail")


def test_a_runtime_beyond_both_neighbours_fails_with_what_the_driver_may_be() -> None:
    profile = image({"/app": gpu_file(module(["70"]), cudart="13.0")})
    found = finding("GPU002", profile, host(V100, driver="540.4.0"))
    assert found.severity == "fail"
    assert "12.2 to 12.3" in found.why


# GPU003, GPU004, GPU008


@pytest.mark.parametrize("target, fits", [("110", "yes"), ("101", "undecided"), ("101a", "undecided"), ("100", "no")])
def test_machine_code_for_a_renamed_target_is_undecided(target: str, fits: str) -> None:
    assert sass_fits(KNOWLEDGE, target, "11.0") == fits
    assert capability_of("101") == "11.0"


def targets(*modules, gpu=V100, driver="535.104.05", components=(), path="/app") -> dict[str, str]:
    profile = image({path: gpu_file(*modules, cudart="9.0")}, components=components)
    return outcomes(profile, host(gpu, driver=driver))


def test_machine_code_of_the_same_major_version() -> None:
    assert targets(module(["80"]), gpu=GEFORCE)["GPU003"] == "ok"
    assert targets(module(["86"]), gpu=A100)["GPU003"] == "fail"
    assert targets(module(["70"]), gpu=A100)["GPU003"] == "fail"


def test_the_error_number_changed_with_cuda_10_1() -> None:
    old, new = (image({"/app": gpu_file(module(["70"]), cudart=v)}) for v in ("9.2", "11.8"))
    assert "48" in finding("GPU003", old, host(K80, driver="470.82.01")).predicted_error
    assert "209" in finding("GPU003", new, host(K80, driver="470.82.01")).predicted_error


def test_single_target_modules_of_vendor_libraries_are_no_false_alarm() -> None:
    modules = (module(["70"], count=50), module(["80"], count=40), module(["90a"], count=10))
    answers = targets(*modules, path="/usr/lib/libcublasLt.so.12")
    assert answers["GPU003"] == "ok"


def test_a_vendor_library_that_lacks_a_gpu_is_a_risk_where_the_own_code_fits() -> None:
    profile = image({"/app": gpu_file(module(["37"])), "/usr/lib/libcudnn_ops.so.9": gpu_file(module(["50", "70"]))})
    assert finding("GPU003", profile, host(K80, driver="470.82.01")).severity == "risk"
    profile = image({"/app": gpu_file(module(["70"])), "/usr/lib/libcusparseLt.so.0": gpu_file(module(["80"]))})
    assert finding("GPU003", profile, host(V100, driver="470.82.01")).severity == "info"


def test_own_code_that_lacks_a_gpu_fails_whatever_the_vendor_libraries_hold() -> None:
    profile = image({"/app": gpu_file(module(["70"])), "/usr/lib/libcublas.so.9.2": gpu_file(module(["37", "70"]))})
    assert finding("GPU003", profile, host(K80, driver="396.44")).severity == "fail"


def test_some_own_files_without_code_are_a_risk() -> None:
    profile = image({"/app": gpu_file(module(["70"])), "/plugin.so": gpu_file(module(["80"]))})
    found = finding("GPU003", profile, host(V100, driver="535.104.05"))
    assert found.severity == "risk"
    assert [each.path for each in found.evidence] == ["/plugin.so"]
    assert "0 of 1 modules" in found.evidence[0].detail


@pytest.mark.parametrize(
    ("paths", "reach", "severity"),
    [
        (("/app_sm70", "/app_sm80"), "path", ""),
        (("/share/k70.cubin", "/share/k80a.cubin"), "path", ""),
        (("/one/app70", "/other/app80"), "path", "risk"),
        (("/solver", "/helper"), "path", "risk"),
        (("/app_sm70", "/app_sm80"), "entry", "risk"),
    ],
)
def test_of_variants_for_several_gpus_one_is_enough(paths: tuple[str, ...], reach: str, severity: str) -> None:
    fitting, other = paths
    files = {fitting: gpu_file(module(["70"])), other: gpu_file(module(["80"]))}
    found = [each for each in check(cell(image(files), host(V100), reach=reach)).findings if each.rule == "GPU003"]
    assert [each.severity for each in found] == [severity] * bool(severity)


def test_what_adds_a_little_to_a_library_that_does_not_run_is_of_no_use() -> None:
    """All six modules of torchvision 0.8.2 have PTX; PyTorch 1.7.1, which it needs, has 804 without any."""
    main, extension = "/torch/lib/libtorch_cuda.so", "/torchvision/_C.so"

    def severity(small: int, **linkage) -> str:
        files = {
            main: gpu_file(module(["70"], count=804)),
            extension: gpu_file(module(["75"], ["75@6.5"], small), **linkage),
        }
        context = cell(image(files), host(A100, driver="535.104.05"))
        chosen = {(extension, "libtorch_cuda.so"): main}
        context = replace(context, closure=replace(context.closure, chosen=chosen))
        (found,) = (each for each in check(context).findings if each.rule == "GPU003")
        return found.severity

    assert severity(6, needed=("libtorch_cuda.so",)) == "fail"
    assert severity(6) == "risk", "it does not need the library"
    assert severity(900, needed=("libtorch_cuda.so",)) == "risk", "it is the larger part"


def test_ptx_alone_is_compiled_at_first_start() -> None:
    answers = targets(module(["35", "70"], ["70@6.0"]), gpu=A100)
    assert (answers["GPU003"], answers["GPU004"], answers["GPU008"]) == ("ok", "degraded", "ok")


def test_machine_code_needs_no_compilation() -> None:
    answers = targets(module(["70"], ["70@8.8"]))
    assert (answers["GPU003"], answers["GPU004"], answers["GPU008"]) == ("ok", "ok", "ok")


def test_ptx_newer_than_the_driver() -> None:
    profile = image({"/app": gpu_file(module([], ["70@8.4"]), cudart="12.4")})
    machine = host(V100, driver="535.104.05")
    assert outcomes(profile, machine)["GPU003"] == "ok"
    found = finding("GPU008", profile, machine)
    assert (found.severity, "222" in found.predicted_error, "550.54.14" in found.remedy) == ("fail", True, True)
    assert outcomes(profile, host(V100, driver="550.54.14"))["GPU008"] == "ok"


def test_ptx_on_an_unknown_driver_is_unknown() -> None:
    profile = image({"/app": gpu_file(module([], ["70@8.4"]))})
    machine = HostProfile("1.0", "host", gpus=known((V100,), "test"))
    assert outcomes(profile, machine)["GPU008"] == "unknown"


def test_lto_code_alone_is_no_code() -> None:
    assert targets(GpuModule(1, lto=("70",)))["GPU003"] == "fail"


def relocatable(*objects: GpuObject) -> GpuModule:
    return GpuModule(1, sass=("70",), objects=objects)


def test_relocatable_ptx_is_compiled_and_linked_by_the_driver_as_other_ptx() -> None:
    found = targets(relocatable(GpuObject(("70",), ("70@6.0",))), gpu=A100)
    assert (found["GPU003"], found["GPU004"], found["GPU008"]) == ("ok", "degraded", "ok")
    assert targets(relocatable(GpuObject(ptx=("70@9.5",))), gpu=A100)["GPU008"] == "fail"
    assert targets(relocatable(GpuObject(ptx=("90@6.0",))), gpu=A100)["GPU003"] == "fail"


def test_relocatable_code_that_is_not_linked_is_told_as_the_driver_tells_it() -> None:
    profile = image({"/app": gpu_file(relocatable(GpuObject(("70",))))})
    assert "named symbol not found" in finding("GPU003", profile, host(A100, driver="535.104.05")).predicted_error
    plain = image({"/app": gpu_file(module(["70"]))})
    assert "no kernel image" in finding("GPU003", plain, host(A100, driver="535.104.05")).predicted_error


@pytest.mark.parametrize(
    ("other", "rule", "outcome"),
    [
        (GpuObject(ptx=("75@6.4",)), "GPU003", "ok"),
        (GpuObject(("75", "80", "90")), "GPU003", "ok"),  # CUDA's device runtime
        (GpuObject(("70",)), "GPU003", "fail"),
        (GpuObject(ptx=("75@9.5",)), "GPU008", "fail"),
    ],
)
def test_the_driver_links_every_object_or_none(other: GpuObject, rule: str, outcome: str) -> None:
    assert targets(relocatable(GpuObject(ptx=("70@6.0",)), other), gpu=A100)[rule] == outcome


@pytest.mark.parametrize(
    ("ptx", "outcome"),
    [
        (("70@6.0", "80@9.5"), "fail"),  # the driver takes the higher target, though it reads the lower one alone
        (("70@9.5", "80@6.0"), "ok"),
        (("80@6.0", "80a@9.5"), "fail"),
        (("80@9.5", "80a@6.0"), "ok"),
        (("80@6.0", "80@9.5"), "unknown"),  # it depends on their order
        (("70@6.0", "90@9.5"), "ok"),
    ],
)
def test_of_several_ptx_the_one_for_the_highest_target_counts(ptx: tuple[str, ...], outcome: str) -> None:
    found = targets(GpuModule(1, sass=("70",), ptx=ptx), gpu=A100)
    assert (found["GPU003"] if outcome == "unknown" else found["GPU008"]) == (
        "risk" if outcome == "unknown" else outcome
    )


@pytest.mark.parametrize(("driver", "outcome"), [("418.40.04", "ok"), ("470.256.02", "fail"), ("580.65.06", "fail")])
def test_ptx_for_the_first_gpus_of_all_is_compiled_by_old_drivers_alone(driver: str, outcome: str) -> None:
    assert targets(GpuModule(1, ptx=("10@2.3",)), gpu=V100, driver=driver)["GPU003"] == outcome
    assert targets(GpuModule(1, ptx=("20@2.3",)), gpu=V100, driver=driver)["GPU003"] == "ok"


def test_code_that_cannot_be_read_is_a_risk_unless_what_can_be_read_runs() -> None:
    unread = GpuModule(1, other=(UNREAD,))
    assert finding("GPU003", image({"/app": gpu_file(unread)}), host(V100, driver="535.104.05")).severity == "risk"
    assert targets(GpuModule(1, sass=("70",), other=(UNREAD,)))["GPU003"] == "ok"
    assert targets(GpuModule(1, sass=("80",)))["GPU003"] == "fail"


def test_two_kinds_of_gpu_of_which_one_fits_is_a_risk_that_names_the_other() -> None:
    profile = image({"/app": gpu_file(module(["70"]))})
    found = finding("GPU003", profile, host(K80, V100, driver="396.44"))
    assert (found.severity, found.subject) == ("risk", "Tesla K80 (3.7)")


def test_two_kinds_of_gpu_of_which_a_vendor_library_alone_fits_one_is_a_risk() -> None:
    profile = image({"/usr/lib/libcudnn_ops.so.9": gpu_file(module(["70"]))})
    assert finding("GPU003", profile, host(K80, V100, driver="396.44")).severity == "risk"
    assert finding("GPU003", profile, host(K80, driver="396.44")).severity == "fail"


def test_two_kinds_of_gpu_of_which_none_fits_fail_each() -> None:
    profile = image({"/app": gpu_file(module(["90"]))})
    found = [f for f in check(cell(profile, host(K80, V100, driver="396.44"))).findings if f.rule == "GPU003"]
    assert [each.severity for each in found] == ["fail", "fail"]


def test_a_mig_instance_counts_as_its_parent() -> None:
    instance = Gpu("NVIDIA A100-SXM4-40GB MIG 1g.5gb", mig=True)
    assert targets(module(["80"]), gpu=instance)["GPU003"] == "ok"
    assert targets(module(["90"]), gpu=instance)["GPU003"] == "fail"


def test_code_of_a_kind_that_is_not_judged_is_a_risk() -> None:
    assert targets(GpuModule(1, other=("tile IR 100",)))["GPU003"] == "risk"


def test_a_gpu_of_unknown_capability_is_unknown() -> None:
    assert targets(module(["80"]), gpu=Gpu("Tesla Z9"))["GPU003"] == "unknown"


def amd_host(target: str) -> HostProfile:
    return HostProfile("1.0", "host", gpus=known((Gpu("MI210", "amd", target=target),), "test"))


@pytest.mark.parametrize(
    ("target", "on", "outcome"),
    [
        ("gfx90a", "gfx90a:sramecc+:xnack-", "ok"), ("gfx90a:xnack+", "gfx90a:sramecc+:xnack-", "fail"),
        ("gfx908", "gfx90a:sramecc+:xnack-", "fail"), ("gfx11-generic", "gfx1102", "ok"),
        ("gfx11-generic", "gfx1030", "fail"), ("gfx90a:xnack-", "gfx90a:sramecc+", "risk"),
        ("gfx90a:xnack+ gfx90a:xnack-", "gfx90a:sramecc+", "ok"), ("gfx908:xnack-", "gfx90a:sramecc+", "fail"),
        ("gfx90a:sramecc-", "gfx90a:sramecc+", "fail"), ("gfx1100", "", "risk"),
    ],
)  # fmt: skip
def test_amd_code_needs_its_exact_target_or_a_generic_one(target: str, on: str, outcome: str) -> None:
    profile = image({"/app": CodeFacts(1, gpu=GpuCode(amd=tuple(target.split())))})
    answers = outcomes(profile, amd_host(on), PLAIN, opens=None)
    assert answers["GPU003"] == outcome
    assert answers["GPU007"] == "not-applicable"


def test_two_kinds_of_amd_gpu_of_which_one_fits_is_a_risk() -> None:
    gpus = (Gpu("MI210", "amd", target="gfx90a"), Gpu("W6800", "amd", target="gfx1030"))
    mixed = HostProfile("1.0", "host", gpus=known(gpus, "test"))
    found = finding("GPU003", image({"/app": CodeFacts(1, gpu=GpuCode(amd=("gfx1030",)))}), mixed, PLAIN, opens=None)
    assert (found.severity, found.subject) == ("risk", "MI210 (gfx90a)")


def test_each_file_with_amd_code_needs_its_own() -> None:
    """Another library's code for the GPU does not help the program, and a library of ROCm's that lacks it is a risk."""
    app, rand = CodeFacts(1, gpu=GpuCode(amd=("gfx90a",))), CodeFacts(1, gpu=GpuCode(amd=("gfx90a", "gfx942")))
    files = image({"/app": app, "/opt/rocm/lib/librocrand.so.1": rand})
    assert finding("GPU003", files, amd_host("gfx942:sramecc+"), PLAIN, opens=None).severity == "fail"
    files = image({"/app": rand, "/opt/rocm/lib/librocrand.so.1": app})
    assert finding("GPU003", files, amd_host("gfx942:sramecc+"), PLAIN, opens=None).severity == "risk"
    assert outcomes(files, amd_host("gfx90a:sramecc+"), PLAIN, opens=None)["GPU003"] == "ok"


@pytest.mark.parametrize(
    ("override", "target", "on", "outcome"),
    [
        ("10.3.0", "gfx1030", "gfx1031", "ok"), ("10.3.0", "gfx1100", "gfx1100", "fail"),
        ("9.0.10", "gfx90a", "gfx942", "ok"), ("", "gfx1030", "gfx1031", "fail"), ("x", "gfx1030", "gfx1031", "fail"),
    ],
)  # fmt: skip
def test_an_image_may_let_an_amd_gpu_pass_for_another(override: str, target: str, on: str, outcome: str) -> None:
    files = {"/app": CodeFacts(1, gpu=GpuCode(amd=(target,)))}
    profile = image(files, environment=[f"HSA_OVERRIDE_GFX_VERSION={override}"])
    assert outcomes(profile, amd_host(on), PLAIN, opens=None)["GPU003"] == outcome


def test_amd_code_on_a_host_without_gpu() -> None:
    profile = image({"/app": CodeFacts(1, gpu=GpuCode(amd=("gfx1030",)))})
    assert outcomes(profile, host(), PLAIN, opens=None)["GPU011"] == "degraded"
    assert outcomes(profile, host(V100, driver="550.54.14"), PLAIN, opens=None)["GPU011"] == "degraded"
    assert outcomes(profile, amd_host("gfx1030"), PLAIN, opens=None)["GPU011"] == "ok"


def test_nvidia_code_on_an_amd_host_lacks_a_gpu() -> None:
    assert outcomes(image({"/app": gpu_file(KEPLER)}), amd_host("gfx90a"), PLAIN, opens=None)["GPU011"] == "degraded"


# GPU005


def required(value: str, machine: HostProfile, runtime=INJECTING, *more: str) -> dict[str, str]:
    profile = image({"/app": gpu_file(module(["70", "80"]))}, [f"NVIDIA_REQUIRE_CUDA={value}", *more])
    return outcomes(profile, machine, runtime)


def test_requirement_is_enforced_by_some_runtimes_alone() -> None:
    machine = host(V100, driver="470.82.01")
    legacy = with_runtime("legacy-hook")
    assert required("cuda>=12.4", machine)["GPU005"] == "fail"
    assert required("cuda>=11.4", machine)["GPU005"] == "ok"
    assert required("cuda>=12.4", machine, with_runtime(""))["GPU005"] == "risk"
    assert required("cuda>=12.4", machine, legacy)["GPU005"] == "risk"
    for version, outcome in (("1.17.8", "fail"), ("1.18.0", "risk")):
        installed = known((InstalledRuntime("nvidia", version),), "test")
        assert required("cuda>=12.4", replace(machine, runtimes=installed), legacy)["GPU005"] == outcome


def with_runtime(enforces: str):
    change = RuntimeChange("1.18", "CDI", enforces_require="never")
    return replace(INJECTING, enforces_require=enforces, changes=(change,))


def test_requirement_on_unknown_facts_is_unknown() -> None:
    machine = HostProfile("1.0", "host", gpus=known((V100,), "test"))
    assert required("cuda>=12.4", machine)["GPU005"] == "unknown"


def test_requirement_switched_off() -> None:
    machine = host(V100, driver="470.82.01")
    assert required("cuda>=12.4", machine, INJECTING, "NVIDIA_DISABLE_REQUIRE=true")["GPU005"] == "not-applicable"


# GPU006

COMPAT = "/usr/local/cuda-12.9/compat/libcuda.so.575.57.08"
NOTE = ForwardCompat("12.9", (535, 550, 570, 575), (1, 2, 7))


def compat_image(note: ForwardCompat | None = NOTE) -> object:
    return image(
        {COMPAT: libcuda("12.9", forward_compat=note), "/app": gpu_file(module(["70", "86"], []), cudart="12.9")}
    )


def test_compat_on_a_listed_branch_is_fine_and_raises_the_drivers_cuda() -> None:
    answers = outcomes(compat_image(), host(V100, driver="535.104.05"), PLAIN, opens=COMPAT)
    assert (answers["GPU001"], answers["GPU006"], answers["GPU002"]) == ("not-applicable", "ok", "ok")


def test_compat_on_a_branch_that_it_does_not_list() -> None:
    found = finding("GPU006", compat_image(), host(V100, driver="470.82.01"), PLAIN, opens=COMPAT)
    assert (found.severity, "803" in found.predicted_error) == ("fail", True)


def test_compat_on_a_geforce() -> None:
    assert (
        "804"
        in finding("GPU006", compat_image(), host(GEFORCE, driver="535.104.05"), PLAIN, opens=COMPAT).predicted_error
    )


def test_compat_without_a_note_is_unknown() -> None:
    assert outcomes(compat_image(None), host(V100, driver="535.104.05"), PLAIN, opens=COMPAT)["GPU006"] == "unknown"


def test_compat_whose_note_lists_the_branch_need_not_be_of_a_newer_one() -> None:
    note = ForwardCompat("12.9", (550, 575), (1, 2))
    assert outcomes(compat_image(note), host(V100, driver="575.51.03"), PLAIN, opens=COMPAT)["GPU006"] == "ok"


def test_compat_over_a_driver_of_no_version_is_unknown() -> None:
    assert outcomes(compat_image(), host(V100, driver="N/A"), PLAIN, opens=COMPAT)["GPU006"] == "unknown"


def test_compat_that_nothing_opens_does_no_harm() -> None:
    assert outcomes(compat_image(), host(V100, driver="470.82.01"))["GPU006"] == "not-applicable"


def test_a_runtime_that_activates_compat_does_so_by_the_note() -> None:
    runtime = replace(INJECTING, applies_compat=True)
    assert outcomes(compat_image(), host(V100, driver="535.104.05"), runtime)["GPU006"] == "ok"
    assert outcomes(compat_image(), host(V100, driver="580.65.06"), runtime)["GPU006"] == "not-applicable"


# GPU007
def test_the_way_out_of_a_missing_driver_names_the_runtime_that_injects_it() -> None:
    docker = KNOWLEDGE.runtimes["docker"]
    profile = image({"/app": gpu_file(KEPLER, cudart="9.0")})
    found = finding("GPU007", profile, host(K80, driver="396.44"), docker, opens=None)
    assert "docker run --gpus all (`--runtime nvidia` here)" in found.remedy


def test_no_libcuda_anywhere() -> None:
    found = finding(
        "GPU007", image({"/app": gpu_file(KEPLER, cudart="9.0")}), host(K80, driver="396.44"), PLAIN, opens=None
    )
    assert (found.severity, "35" in found.predicted_error) == ("fail", True)


def test_a_file_linked_against_libcuda_does_not_start_without_it() -> None:
    profile = image({"/app": gpu_file(KEPLER, needed=["libcuda.so.1"])})
    assert (
        "cannot open shared object file"
        in finding("GPU007", profile, host(K80, driver="396.44"), PLAIN, opens=None).predicted_error
    )


@pytest.mark.parametrize(
    ("needed_by", "words"),
    [
        ("", "Found no NVIDIA driver on your system."),
        ("/site-packages/torch/_C.so", "error while loading shared libraries: libcuda.so.1"),
        ("/usr/bin/train", "error while loading shared libraries: libcuda.so.1"),
        ("/opt/plugin.so", "Found no NVIDIA driver on your system."),
    ],
)
def test_a_library_that_is_opened_later_does_not_keep_the_command_from_starting(needed_by: str, words: str) -> None:
    """PyTorch opens its libcaffe2_nvrtc.so when it compiles a kernel: `import torch` works without libcuda.so.1."""
    main, later = "/site-packages/torch/lib/libtorch_cuda.so", "/site-packages/torch/lib/libcaffe2_nvrtc.so"
    files = {
        "/site-packages/torch/_C.so": CodeFacts(1, Linkage(64, "x86_64", python_module=True)),
        "/usr/bin/train": CodeFacts(1, Linkage(64, "x86_64", type="executable")),
        "/opt/plugin.so": CodeFacts(1, Linkage(64, "x86_64", soname="plugin.so")),
        main: gpu_file(module(["70"])),
        later: gpu_file(needed=["libcuda.so.1"]),
    }
    loaded = {begun: (begun, later) if begun == needed_by else (begun,) for begun in (later, *files)}
    context = cell(image(files, components=[TORCH]), host(V100, driver="550.54.14"), PLAIN, opens=None)
    context = replace(context, closure=replace(context.closure, loaded=loaded))
    (found,) = (each for each in check(context).findings if each.rule == "GPU007")
    assert (found.severity, found.predicted_error.startswith(words)) == ("fail", True)
    assert (main in {each.path for each in found.evidence}) == words.startswith("Found")


def test_a_stub_is_no_driver() -> None:
    stub = "/usr/local/cuda/lib64/stubs/libcuda.so"
    profile = image({stub: libcuda("", stub=True), "/app": gpu_file(KEPLER)})
    assert "stub" in finding("GPU007", profile, host(K80, driver="396.44"), PLAIN, opens=stub).predicted_error


def test_no_libcuda_on_an_undescribed_host_is_unknown() -> None:
    profile = image({"/app": gpu_file(KEPLER)})
    assert outcomes(profile, HostProfile("1.0", "host"), PLAIN, opens=None)["GPU007"] == "unknown"
    assert outcomes(profile, HostProfile("1.0", "host"), INJECTING, opens=None)["GPU007"] == "unknown"


def test_who_describes_a_host_reads_how_to_say_that_it_has_no_gpu() -> None:
    profile = image({"/app": gpu_file(KEPLER)})
    for machine, told in (
        (describe_host(KNOWLEDGE, cpu="haswell"), '--gpu not given ("none" for a host without one)'),
        (HostProfile("1.0", "probed"), "is not known"),
    ):
        (reason,) = (c.reason for c in check(cell(profile, machine, PLAIN, opens=None)).checks if c.rule == "GPU011")
        assert reason.endswith(told)


def test_a_gpu_without_a_driver() -> None:
    machine = HostProfile("1.0", "h", driver=Driver(absent("t"), absent("t"), absent("t")), gpus=known((K80,), "t"))
    assert outcomes(image({"/app": gpu_file(KEPLER)}), machine, opens=None)["GPU007"] == "fail"


# GPU009


def test_a_driver_function_newer_than_the_driver() -> None:
    profile = image({"/app": gpu_file(KEPLER, functions=["cuLaunchKernelEx", "cuInit"], flags=["now"])})
    found = finding("GPU009", profile, host(K80, driver="470.82.01"))
    assert (found.subject, found.severity) == ("cuLaunchKernelEx", "fail")
    assert "undefined symbol: cuLaunchKernelEx" in found.predicted_error
    assert outcomes(profile, host(K80, driver="525.60.13"))["GPU009"] == "ok"


def test_lazily_bound_it_is_a_risk() -> None:
    profile = image({"/app": gpu_file(KEPLER, functions=["cuLaunchKernelEx"])})
    assert finding("GPU009", profile, host(K80, driver="470.82.01")).severity == "risk"


@pytest.mark.parametrize(
    ("framework", "release", "opens", "opened", "severity"),
    [
        ("ONNX Runtime", "1.22.0", "$ORIGIN/libprovider.so", "/ort/libprovider.so", "risk"),
        ("ONNX Runtime", "1.22.0", "$ORIGIN/libprovider.so", "/ort/libother.so", "fail"),
        ("TensorFlow", "2.21.0", "libcublas.so.12", "/lib/libcublas.so.12", "risk"),
        ("CTranslate2", "4.8.5", "libcublas.so.12", "/lib/libcublas.so.12", "fail"),
    ],
)
def test_in_what_a_framework_opens_and_goes_on_without_it_is_a_risk(
    framework: str, release: str, opens: str, opened: str, severity: str
) -> None:
    component = Component(framework, release, opener="/ort/opener.so", opens=(opens,))
    files = {opened: gpu_file(KEPLER, functions=["cuLaunchKernelEx"], flags=["now"])}
    context = cell(image(files, components=[component]), host(K80, driver="470.82.01"))
    chosen = {("/ort/opener.so", "libcublas.so.12"): opened}
    context = replace(context, closure=replace(context.closure, chosen=chosen))
    (found,) = (each for each in check(context).findings if each.rule == "GPU009")
    assert found.severity == severity


def test_the_hosts_real_exports_decide_where_they_were_read() -> None:
    profile = image({"/app": gpu_file(KEPLER, functions=["cuLaunchKernelEx"], flags=["now"])})
    library = HostLibrary("/usr/lib64/libcuda.so.1", "libcuda.so.1", functions=("cuInit", "cuLaunchKernelEx"))
    machine = replace(host(K80, driver="470.82.01"), libraries=known((library,), "test"))
    assert outcomes(profile, machine)["GPU009"] == "ok"
    lacking = replace(library, functions=("cuInit",))
    assert outcomes(profile, replace(machine, libraries=known((lacking,), "t")))["GPU009"] == "fail"


def test_functions_that_another_library_names_like_the_drivers() -> None:
    exports = HostLibrary("/usr/lib64/libcuda.so.1", "libcuda.so.1", "x86_64", "580.65.06", functions=("cuInit",))
    machine = replace(host(A100, driver="580.65.06"), libraries=known((exports,), "t"))
    needed, functions = ["libcuopt.so", "libcuda.so.1"], ["cuInit", "cuOptSolve"]
    solver = image({"/solve": gpu_file(module(["80"]), needed=needed, functions=functions, flags=["now"])})
    assert outcomes(solver, machine)["GPU009"] == "ok"


# GPU010, GPU011, GPU012


def test_below_tensorflows_minimum() -> None:
    component = Component("TensorFlow", "1.12.0", minimum_capability="7.0", built_for=("7.0",))
    profile = image({"/app": gpu_file(module(["37", "70"]))}, components=[component])
    found = finding("GPU010", profile, host(K80, driver="396.44"))
    assert "Ignoring visible gpu device (device: 0, name: Tesla K80" in found.predicted_error
    assert "The minimum required Cuda capability is 7.0." in found.predicted_error
    assert outcomes(profile, host(V100, driver="396.44"))["GPU010"] == "ok"
    assert finding("GPU010", profile, host(K80, V100, driver="396.44")).severity == "risk"


def test_a_host_without_gpu() -> None:
    profile = image({"/app": gpu_file(KEPLER)})
    assert outcomes(profile, host(), opens=None) == dict.fromkeys(ALL, "not-applicable") | {"GPU011": "degraded"}
    assert outcomes(profile, host(), opens=None, require_gpu=True)["GPU011"] == "fail"
    assert outcomes(profile, host(K80, driver="396.44"))["GPU011"] == "ok"


def test_a_gpu_that_is_asked_for_is_missed_also_by_an_image_without_gpu_code() -> None:
    plain = image({"/app": CodeFacts(1)})
    assert outcomes(plain, host(), opens=None)["GPU011"] == "not-applicable"
    found = outcomes(plain, host(), opens=None, require_gpu=True)
    assert found == dict.fromkeys(ALL, "not-applicable") | {"GPU011": "fail"}
    missing = finding("GPU011", plain, host(), opens=None, require_gpu=True)
    assert missing.title == "No usable GPU for the image"
    assert missing.why.startswith("A GPU is asked for (--require-gpu), and nothing runs it: no GPU was found")
    for machine in (host(V100, driver="550.54.14"), amd_host("gfx1030")):
        assert outcomes(plain, machine, opens=None, require_gpu=True)["GPU011"] == "ok"
    assert outcomes(plain, HostProfile("1.0", "x"), opens=None, require_gpu=True)["GPU011"] == "unknown"
    barred = outcomes(plain, host(V100, driver="550.54.14"), PLAIN, opens=None, require_gpu=True)
    assert barred["GPU011"] == "fail"  # the host has one, and the container gets none


@pytest.mark.parametrize("visible", ["", "-1", "-01", "-", "NoDevFiles", "none", "all", "-1,0", "a0", "gpu-45d142b6"])
def test_an_image_that_hides_the_gpus_gets_none(visible: str) -> None:
    profile = image({"/app": gpu_file(module(["37"]))}, environment=[f"CUDA_VISIBLE_DEVICES={visible}"])
    machine = host(K80, driver="396.44")
    assert outcomes(profile, machine)["GPU011"] == "degraded"
    found = finding("GPU011", profile, machine, require_gpu=True)
    assert found.severity == "fail"
    assert f"ENV CUDA_VISIBLE_DEVICES={visible} of the image" in found.why
    assert "apptainer --env" in found.remedy


@pytest.mark.parametrize("visible", ["0", "0,1", " 0", "+0", "-0", "0a", "0,-1", "GPU-45d142b6", "MIG-1"])
def test_an_image_that_picks_gpus_gets_them(visible: str) -> None:
    profile = image({"/app": gpu_file(module(["37"]))}, environment=[f"CUDA_VISIBLE_DEVICES={visible}"])
    assert outcomes(profile, host(K80, driver="396.44"), require_gpu=True)["GPU011"] == "ok"


@pytest.mark.parametrize(
    ("visible", "gpus", "outcome"),
    [
        ("1", 1, "fail"), ("1,0", 1, "fail"), ("+3a", 3, "fail"), ("9" * 9999, 8, "fail"), ("1", 2, "ok"),
        ("0,7", 1, "ok"),
    ],
)  # fmt: skip
def test_an_image_that_begins_with_a_gpu_beyond_the_hosts_hides_all(visible: str, gpus: int, outcome: str) -> None:
    profile = image({"/app": gpu_file(module(["37"]))}, environment=[f"CUDA_VISIBLE_DEVICES={visible}"])
    machine = host(*[K80] * gpus, driver="396.44")
    assert outcomes(profile, machine, require_gpu=True)["GPU011"] == outcome
    assert outcomes(profile, machine)["GPU011"] == ("degraded" if outcome == "fail" else "ok")
    described = replace(machine, described=True)  # by its kinds of GPUs, of which it may have more
    assert outcomes(profile, described, require_gpu=True)["GPU011"] == ("risk" if outcome == "fail" else "ok")


def test_slices_of_a_gpu_are_not_counted() -> None:
    profile = image({"/app": gpu_file(module(["80"]))}, environment=["CUDA_VISIBLE_DEVICES=1"])
    machine = host(replace(A100, mig=True), driver="535.104.05")
    assert outcomes(profile, machine, require_gpu=True)["GPU011"] == "ok"


@pytest.mark.parametrize(
    ("gpu", "driver", "outcome"),
    [
        (K80, "470.82.01", "ok"), (K80, "535.104.05", "fail"), (V100, "580.65.06", "ok"), (V100, "590.44.01", "fail"),
        (A100, "440.33.01", "fail"), (A100, "450.80.02", "ok"), (Gpu("Tesla M2090"), "390.30", "ok"),
        (Gpu("Tesla M2090"), "396.44", "fail"), (Gpu("NVIDIA H200"), "535.104.05", "risk"),
        (Gpu("NVIDIA GeForce RTX 5090"), "570", "unknown"), (Gpu("NVIDIA GeForce RTX 5090"), "565", "fail"),
    ],
)  # fmt: skip
def test_driver_branches_and_gpu_generations(gpu: Gpu, driver: str, outcome: str) -> None:
    assert outcomes(image({"/app": gpu_file(KEPLER)}), host(gpu, driver=driver))["GPU012"] == outcome


# the minimum statement


def test_what_an_image_needs_of_any_host() -> None:
    profile = image({"/app": gpu_file(module(["35", "70"], ["70@6.0"]), cudart="9.0")})
    stated = {what: needed for what, needed, _ in minimum(profile, KNOWLEDGE)}
    assert stated["GPU driver"] == "384.81 or newer"
    assert stated["GPU, native"] == "compute capability 3.5, 3.7, 7.0, 7.5"
    assert stated["GPU, by JIT of PTX"].startswith("compute capability 7.2, 8.0")
    assert "5.2" in stated["GPU, not on"]
    newer = image({"/app": gpu_file(module(["80"], ["80@8.7"]), cudart="12.8")})
    stated = {what: needed for what, needed, _ in minimum(newer, KNOWLEDGE)}
    assert stated["GPU driver"] == "525.60.13 or newer"
    assert stated["GPU, by JIT of PTX"].endswith("with driver 570.26 or newer")


def test_an_image_without_gpu_code_states_nothing() -> None:
    assert list(minimum(image({"/usr/bin/true": CodeFacts(1)}), KNOWLEDGE)) == []


def test_a_profile_that_is_kept_states_its_minimum() -> None:
    profile = image({"/usr/lib/libm.so": CodeFacts(1, gpu=GpuCode((GpuModule(1, sass=("70",)),), cudart="9.0"))})
    kept = decode(encode(with_minimum(profile, KNOWLEDGE)), ImageProfile, "x")
    assert {statement.what: statement.needed for statement in kept.minimum}["GPU driver"] == "384.81 or newer"


def test_an_image_without_a_c_library_gets_what_is_injected() -> None:
    context = cell(image({"/app": gpu_file(KEPLER, cudart="9.0")}), host(K80, driver="396.44"), opens=None)
    assert {r.rule: r.outcome for r in check(context).checks}["GPU007"] == "fail"
    bare = replace(context, closure=replace(context.closure, libcs=frozenset()))
    assert {r.rule: r.outcome for r in check(bare).checks}["GPU007"] == "ok"


# GPU013


COMPILER = "/usr/lib64/libnvidia-ptxjitcompiler.so.550.54.14"


def only_ptx(opens: str | None, compiler: str = "", extra=(), driver: str = "550.54.14"):
    """A cell whose own code is PTX for 7.0 on a V100, with the libcuda that is opened and the compiler library."""
    files = {"/app": gpu_file(module([], ["70@8.0"])), **dict(extra)}
    context = cell(image(files), host(V100, driver=driver), PLAIN if opens else INJECTING, opens=opens)
    if compiler:
        opened = context.closure.opens | {"libnvidia-ptxjitcompiler.so.1": compiler}
        context = replace(context, closure=replace(context.closure, opens=opened))
    return context


def answer(context, rule: str) -> str:
    return {result.rule: result.outcome for result in check(context).checks}[rule]


def test_ptx_alone_without_the_compiler_library_fails() -> None:
    bundled_driver = {"/opt/libcuda.so.550.54.14": libcuda("12.4")}
    context = only_ptx("/opt/libcuda.so.550.54.14", extra=bundled_driver.items())
    assert answer(context, "GPU013") == "fail"
    (found,) = (each for each in check(context).findings if each.rule == "GPU013")
    assert "PTX JIT compiler library not found" in found.predicted_error
    assert "{" not in found.title + found.why + found.remedy


def test_ptx_alone_with_the_compiler_library_is_fine() -> None:
    assert answer(only_ptx("", COMPILER), "GPU013") == "ok"


@pytest.mark.parametrize(
    ("compiler", "outcome"),
    [
        ("/opt/jit/libnvidia-ptxjitcompiler.so.535.104.05", "fail"),
        ("/opt/jit/libnvidia-ptxjitcompiler.so.550.163.01", "risk"),
        ("/opt/jit/libnvidia-ptxjitcompiler.so.550.54.14", "ok"),
        ("/opt/jit/libnvidia-ptxjitcompiler.so.1", "unknown"),
    ],
)
def test_a_compiler_library_of_another_driver_ends_the_process(compiler: str, outcome: str) -> None:
    context = only_ptx("", compiler)
    assert answer(context, "GPU013") == outcome
    for found in (each for each in check(context).findings if each.rule == "GPU013"):
        assert found.predicted_error == "Segmentation fault (core dumped)"
        assert compiler in found.why and "550.54.14" in found.why


@pytest.mark.parametrize(("own", "outcome"), [(True, "ok"), (False, "fail")])
def test_cuda_compat_compiles_with_the_library_beside_it(own: bool, outcome: str) -> None:
    files = {COMPAT: libcuda("12.9", forward_compat=NOTE)}
    if own:
        files["/usr/local/cuda-12.9/compat/libnvidia-ptxjitcompiler.so.575.57.08"] = CodeFacts(1)
    assert answer(only_ptx(COMPAT, COMPILER, files.items()), "GPU013") == outcome


@pytest.mark.parametrize(("driver", "outcome"), [("550.54.14", "ok"), ("535.104.05", "fail")])
def test_an_injected_compiler_library_is_of_the_hosts_driver(driver: str, outcome: str) -> None:
    """Whatever it is called there, and whatever libcuda the image brings."""
    injected = "/.singularity.d/libs/libnvidia-ptxjitcompiler.so.1"
    bundled = {"/opt/libcuda.so.550.54.14": libcuda("12.4")}
    context = only_ptx("/opt/libcuda.so.550.54.14", injected, bundled.items(), driver=driver)
    context = replace(context, closure=replace(context.closure, injected=frozenset([injected])))
    assert answer(context, "GPU013") == outcome


def test_the_compiler_library_matters_where_ptx_is_all_there_is() -> None:
    fitting = image({"/app": gpu_file(module(["70"], ["70@8.0"]))})
    assert outcomes(fitting, host(V100, driver="550.54.14"))["GPU013"] == "not-applicable"


def test_native_code_beside_it_makes_the_missing_compiler_a_risk() -> None:
    native = {"/other": gpu_file(module(["70"]))}
    assert answer(only_ptx("", extra=native.items()), "GPU013") == "risk"


def test_whether_an_old_driver_needs_the_compiler_library_is_unknown() -> None:
    profile = image({"/app": gpu_file(module([], ["35@4.1"]))})
    assert outcomes(profile, host(K80, driver="375.51"))["GPU013"] == "unknown"


# GPU014; on TensorFlow's own library in test_opened.py


OPENER = "/usr/lib/python3/dist-packages/ctranslate2.libs/libctranslate2.so.4"
CTRANSLATE2 = Component("CTranslate2", "4.8.5", opener=OPENER, opens=("libcublas.so.12",))


def opening(problems: tuple[Problem, ...] = (), machine: HostProfile | None = None):
    """A cell with CTranslate2, of whose libraries `problems` are missing."""
    files = {OPENER: gpu_file(KEPLER)}
    context = cell(image(files, components=[CTRANSLATE2]), machine or host(K80, driver="396.44"))
    return replace(context, closure=replace(context.closure, problems=problems))


MISSING = Problem("opened", OPENER, "libcublas.so.12", root=OPENER, searched=("/lib",))


def test_a_library_that_a_framework_opens_and_misses_fails_with_its_words() -> None:
    (found,) = (each for each in check(opening((MISSING,))).findings if each.rule == "GPU014")
    assert found.severity == "fail"
    assert found.predicted_error == "RuntimeError: Library libcublas.so.12 is not found or cannot be loaded"
    assert "{" not in found.title + found.why + found.remedy


def test_a_framework_that_finds_what_it_opens_is_fine() -> None:
    assert answer(opening(), "GPU014") == "ok"


def test_what_is_missing_elsewhere_is_no_matter_of_the_framework() -> None:
    other = Problem("library", OPENER, "libcublas.so.12", root=OPENER)
    assert answer(opening((other,)), "GPU014") == "ok"


def test_a_host_without_a_gpu_opens_nothing() -> None:
    assert answer(opening((MISSING,), host()), "GPU014") == "not-applicable"


def test_what_a_framework_loads_from_packages_by_itself_is_not_missing() -> None:
    opener = "/usr/lib/python3/dist-packages/jax_cuda13_plugin/_versions.so"
    jax = Component("JAX CUDA 13 plugin", "0.10.2", opener=opener, opens=("libcudnn.so.9",))
    context = cell(image({opener: gpu_file(KEPLER)}, components=[jax]), host(K80, driver="396.44"))
    for place, outcome in ("/usr/lib/python3/dist-packages/nvidia/cudnn/lib", "ok"), ("/opt/lib", "fail"):
        missing = Problem("opened", opener, "libcudnn.so.9", root=opener, elsewhere=(f"{place}/libcudnn.so.9",))
        assert answer(replace(context, closure=replace(context.closure, problems=(missing,))), "GPU014") == outcome
