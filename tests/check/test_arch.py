"""ARCH001: foreign programs, in the words of each runtime."""

import pytest
from msgspec.structs import replace

from imgcheck.check.arch import check
from imgcheck.documents.image import ImageConfig
from imgcheck.host.describe import describe_host
from imgcheck.loader.closure import Roots
from tests.check.contexts import KNOWLEDGE, code, context, cpu, findings, outcome

POWER = {"/usr/bin/python": code(machine="ppc64le", type="executable")}


def test_power_image_on_x86_is_an_exec_format_error() -> None:
    config = ImageConfig(entrypoint=("/usr/bin/python",))
    answers = check(context(POWER, platform="ppc64le", config=config))
    (finding,) = findings(answers, "ARCH001")
    assert outcome(answers, "ARCH001") == "fail"
    assert finding.predicted_error == "exec /usr/bin/python: exec format error"
    assert finding.evidence[0].path == "/usr/bin/python"


def test_same_image_on_power_is_fine() -> None:
    assert outcome(check(context(POWER, cpu("power8"), platform="ppc64le")), "ARCH001") == "ok"


@pytest.mark.parametrize(
    ("runtime", "text"),
    [
        ("podman", "exec container process `/app`: Exec format error"),
        ("apptainer-nv", "FATAL: image targets 'arm64', cannot run on 'amd64'"),
        ("charliecloud", "error: can't execve(2): /app: Exec format error"),
        ("udocker", "exec /app: exec format error"),
    ],
)
def test_each_runtime_says_it_in_its_words(runtime: str, text: str) -> None:
    files = {"/app": code(machine="aarch64", type="executable")}
    (finding,) = findings(check(context(files, runtime=runtime, platform="arm64")), "ARCH001")
    assert finding.predicted_error == text


def test_platform_decides_where_there_is_no_program() -> None:
    assert outcome(check(context({}, platform="arm64")), "ARCH001") == "fail"
    answers = check(context({}, platform="amd64"))
    assert outcome(answers, "ARCH001") == "not-applicable"
    assert answers.checks[0].reason == "the image is for x86_64, and no program is known to start"


def test_foreign_files_beside_native_programs_are_fine() -> None:
    files = {
        "/app": code(type="executable"),
        "/usr/share/firmware": code(machine="aarch64", type="executable"),
    }
    assert outcome(check(context(files)), "ARCH001") == "ok"


def test_a_foreign_program_that_a_script_starts_is_a_risk() -> None:
    files = {"/bin/sh": code(type="executable"), "/app": code(machine="aarch64", type="executable")}
    here = context(files)
    assert outcome(check(replace(here, roots=Roots(entries=("/bin/sh",)))), "ARCH001") == "ok"
    (finding,) = findings(check(replace(here, roots=Roots(entries=("/bin/sh", "/app")))), "ARCH001")
    assert (finding.severity, finding.evidence[0].path) == ("risk", "/app")
    assert "aarch64" in finding.title
    chosen = Roots(entries=("/bin/sh", "/app"), perhaps=("/app",))  # by `case $(uname -m)`
    assert outcome(check(replace(here, roots=chosen)), "ARCH001") == "ok"


def test_a_native_tool_does_not_make_a_foreign_image_run() -> None:
    """Tools for other machines lie in images of CUDA's compilers and of Node.js."""
    foreign = {f"/usr/bin/{name}": code(machine="aarch64", type="executable") for name in ("sh", "env", "tool")}
    here = context({**foreign, "/opt/esbuild": code(type="executable")}, platform="arm64")
    assert outcome(check(here), "ARCH001") == "fail"
    command = replace(here, roots=Roots(entries=("/usr/bin/sh", "/opt/esbuild")))
    (finding,) = findings(check(command), "ARCH001")
    assert (finding.severity, finding.evidence[0].path) == ("fail", "/usr/bin/sh")
    assert outcome(check(replace(here, roots=Roots(entries=("/opt/esbuild",)))), "ARCH001") == "ok"


def test_32_bit_x86_runs_on_64_bit() -> None:
    files = {"/app": code(machine="i386", type="executable")}
    assert outcome(check(context(files, platform="386")), "ARCH001") == "ok"


def test_32_bit_arm_on_64_bit_arm_is_a_risk() -> None:
    files = {"/app": code(machine="arm", type="executable")}
    assert outcome(check(context(files, cpu("graviton2"), platform="arm")), "ARCH001") == "risk"


def test_unknown_host_is_unknown() -> None:
    assert outcome(check(context(POWER, describe_host(KNOWLEDGE, glibc="2.17"))), "ARCH001") == "unknown"
