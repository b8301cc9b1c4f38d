"""The gate as a CI job meets it: `imgcheck image REF` under a policy, its exit status and its output."""

import io
import json
import os
import tarfile
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from imgcheck.cli import main
from imgcheck.documents import encode
from imgcheck.documents.host import known
from imgcheck.host.describe import describe_host
from imgcheck.knowledge import Knowledge
from tests.ci.images import layout, program
from tests.images import File, ImageBuilder, write_layout
from tests.tools import compile_c

BOTH = """
[[host]]
name = "old"
cpu = "broadwell"
kernel = "4.18"
[[host]]
name = "new"
cpu = "skylake-avx512"
kernel = "4.18"
"""
WAIVER = """
[[waiver]]
rule = "CPU001"
path = "/opt/app/**"
reason = "the old nodes leave in March"
expires = {}
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Profiles of the image for each CPU, made once."""
    directory = tmp_path_factory.mktemp("images")
    for march in ("skylake-avx512", "broadwell"):
        layout(directory / march, march)
        reference = f"oci:{directory / march}"
        assert main(["profile", reference, "--no-store", "-o", str(directory / f"{march}.json")]) == 0
    return {march: str(directory / f"{march}.json") for march in ("skylake-avx512", "broadwell")}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's directory, entered, with a policy that requires an old and a new host."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "imgcheck.toml").write_text(BOTH)
    return tmp_path


def gate(image: str, *options: str) -> int:
    return main(["image", image, "--runtime", "docker", *options])


def report_of(image: str, *options: str) -> dict:
    gate(image, "-o", "json=report.json", *options)
    return json.loads(Path("report.json").read_text())


def test_one_run_checks_every_required_host_and_says_which_it_would_break(images, project, capsys):
    assert gate(images["skylake-avx512"]) == 1
    table = capsys.readouterr().out
    assert "Fails on 1 of 2 hosts" in table
    report = report_of(images["skylake-avx512"])
    assert {each["host"]["name"]: each["verdict"] for each in report["requirements"]} == {
        "old": "incompatible",
        "new": "compatible",
    }
    assert report["host"]["name"] == "old"
    assert gate(images["broadwell"]) == 0


def test_the_policy_is_found_from_below_and_left_alone_where_asked(images, project, monkeypatch, capsys):
    (project / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(project / "deep" / "er")
    assert gate(images["skylake-avx512"]) == 1
    capsys.readouterr()
    assert main(["image", images["skylake-avx512"], "--no-policy"]) == 0
    assert "What it needs of a host" in capsys.readouterr().out
    assert main(["image", "x", "--no-policy", "--policy", "y"]) == 2


def test_a_policy_that_is_wrong_is_exit_2_in_one_line(images, project, capsys):
    (project / "imgcheck.toml").write_text("[[host]]\ncpuu = 'haswell'\n")
    assert gate(images["broadwell"]) == 2
    assert "imgcheck.toml: host 1: unknown key 'cpuu'\n  did you mean cpu?" in capsys.readouterr().err


DEMANDING = ['fail_on = "risk"', 'runtimes = ["docker"]', "allow_unknown = true", WAIVER.format("2099-01-01")]


@pytest.mark.parametrize("text", DEMANDING)
def test_a_policy_that_demands_something_of_no_host_is_exit_2(images, project, text, capsys):
    (project / "imgcheck.toml").write_text(text)
    assert main(["image", images["skylake-avx512"]]) == 2
    assert f"{project}/imgcheck.toml: it has no [[host]]" in capsys.readouterr().err
    assert main(["image", images["skylake-avx512"], "--no-policy"]) == 0
    (project / "mine.json").write_bytes(encode(describe_host(Knowledge(), cpu="skylake-avx512", kernel="4.18")))
    assert gate(images["skylake-avx512"], "--host-probe", "mine.json") == 0


def test_an_empty_policy_lets_nothing_through_where_it_is_named(images, project, capsys):
    (project / "imgcheck.toml").write_text("")
    assert main(["image", images["skylake-avx512"], "--policy", "imgcheck.toml"]) == 2
    assert "imgcheck.toml: it has no [[host]]" in capsys.readouterr().err
    assert main(["image", images["skylake-avx512"]]) == 0
    assert "What it needs of a host" in capsys.readouterr().out


def test_host_probe_goes_before_the_hosts_of_the_policy_but_not_before_its_waivers(images, project):
    host = describe_host(Knowledge(), cpu="haswell", kernel="4.18", name="mine")
    (project / "mine.json").write_bytes(encode(host))
    (project / "imgcheck.toml").write_text(BOTH + WAIVER.format("2099-01-01"))
    report = report_of(images["skylake-avx512"], "--host-probe", "mine.json")
    assert report["host"]["name"] == "mine"
    assert report["findings"][0]["waived"]


def test_a_waiver_lets_it_pass_and_an_expired_one_does_not(images, project, capsys):
    (project / "imgcheck.toml").write_text(BOTH + WAIVER.format("2099-01-01"))
    assert gate(images["skylake-avx512"]) == 0
    table = capsys.readouterr().out
    assert "Waived" in table
    assert "the old nodes leave in March (until 2099-01-01)" in table
    (project / "imgcheck.toml").write_text(BOTH + WAIVER.format("2001-01-01"))
    assert gate(images["skylake-avx512"]) == 1
    assert "expired on 2001-01-01" in capsys.readouterr().out


def test_an_unused_waiver_is_reported_and_fails_nothing(images, project, capsys):
    (project / "imgcheck.toml").write_text(BOTH + WAIVER.format("2099-01-01"))
    assert gate(images["broadwell"]) == 0
    assert "waiver of CPU001 at /opt/app/** matches nothing" in capsys.readouterr().out


def test_hosts_of_the_command_line_make_no_waiver_of_the_policy_unused(images, project):
    for cpu in ("skylake-avx512", "broadwell"):
        (project / f"{cpu}.json").write_bytes(encode(describe_host(Knowledge(), cpu=cpu, kernel="4.18")))
    waiver = WAIVER.format("2099-01-01")
    (project / "imgcheck.toml").write_text(BOTH + waiver)
    assert report_of(images["skylake-avx512"], "--host-probe", "skylake-avx512.json")["notes"] == []
    (project / "imgcheck.toml").write_text(waiver)
    (unused,) = report_of(images["skylake-avx512"], "--host-probe", "skylake-avx512.json")["notes"]
    assert "matches nothing" in unused


def test_severity_and_fail_level_of_the_policy_count_and_the_option_wins(images, project):
    (project / "imgcheck.toml").write_text(BOTH + '[severity]\nCPU001 = "risk"\n')
    assert gate(images["skylake-avx512"]) == 0
    assert gate(images["skylake-avx512"], "--fail-on", "risk") == 1
    (project / "imgcheck.toml").write_text('fail_on = "never"\n' + BOTH)
    assert gate(images["skylake-avx512"]) == 0
    assert gate(images["skylake-avx512"], "--fail-on", "fail") == 1


@pytest.mark.parametrize(("fail_on", "failures"), [("risk", "1"), ("fail", "0"), ("never", "0")])
def test_junit_has_a_failure_where_the_level_of_the_policy_makes_the_exit_status_1(images, project, fail_on, failures):
    (project / "imgcheck.toml").write_text(f'fail_on = "{fail_on}"\n{BOTH}[severity]\nCPU001 = "risk"\n')
    assert gate(images["skylake-avx512"], "-o", "junit=report.xml") == int(failures)
    old, new = ET.parse("report.xml").findall("testsuite")
    assert (old.get("failures"), new.get("failures")) == (failures, "0")


def test_every_runtime_of_a_policy_must_do(images, project):
    (project / "imgcheck.toml").write_text('runtimes = ["docker", "apptainer"]\n' + BOTH)
    assert main(["image", images["broadwell"], "-o", "json=report.json"]) == 0
    report = json.loads((project / "report.json").read_text())
    asked = [(each["host"]["name"], each["runtime"]) for each in report["requirements"]]
    assert asked == [("old", "docker"), ("old", "apptainer"), ("new", "docker"), ("new", "apptainer")]


def test_a_runtime_that_is_named_twice_counts_once(images, project):
    (project / "imgcheck.toml").write_text('runtimes = ["docker", "docker"]\n' + BOTH)
    for options in ([], ["--runtime", "docker", "--runtime", "docker"]):
        main(["image", images["broadwell"], "-o", "json=report.json", *options])
        report = json.loads(Path("report.json").read_text())
        assert [each["host"]["name"] for each in report["requirements"]] == ["old", "new"]
        assert [each["host"] for each in report["cells"]] == ["old", "new"]


def test_a_baseline_lets_an_image_pass_until_it_gets_worse(images, project, capsys):
    assert gate(images["broadwell"], "--write-baseline", "good.json") == 0
    assert gate(images["skylake-avx512"], "--baseline", "good.json") == 1
    assert gate(images["skylake-avx512"], "--write-baseline", "bad.json") == 0
    assert gate(images["skylake-avx512"], "--baseline", "bad.json") == 0
    capsys.readouterr()
    assert gate(images["broadwell"], "--baseline", "bad.json") == 0
    assert "of the baseline is found no more" in capsys.readouterr().out


def test_a_baseline_does_not_cover_a_host_that_is_required_later(images, project):
    (project / "imgcheck.toml").write_text('baseline = "base.json"\n' + BOTH)
    assert gate(images["skylake-avx512"], "--write-baseline", "base.json") == 0
    assert gate(images["skylake-avx512"]) == 0
    (project / "imgcheck.toml").write_text('baseline = "base.json"\n' + BOTH.replace('"old"', '"older"'))
    assert gate(images["skylake-avx512"]) == 1


def test_a_baseline_that_is_written_is_told_with_what_it_holds(images, project, capsys):
    assert gate(images["skylake-avx512"], "--write-baseline", "base.json") == 0
    kept = len(json.loads((project / "base.json").read_text())["findings"])
    assert f"note: base.json written: {kept} finding" in capsys.readouterr().err


def test_a_baseline_that_is_not_there_is_exit_2_with_the_way_out(images, project, capsys):
    assert gate(images["broadwell"], "--baseline", "no.json") == 2
    assert "--write-baseline no.json" in capsys.readouterr().err
    (project / "no.json").write_text("{}")
    assert gate(images["broadwell"], "--baseline", "no.json") == 2


def test_equal_hosts_are_spoken_of_as_a_kind(images, project, capsys):
    host = describe_host(Knowledge(), cpu="broadwell", kernel="4.18")
    for number in range(1, 6):
        node = msgspec.structs.replace(host, name=f"n{number}", kernel=known("5.14" if number > 3 else "4.18", "uname"))
        (project / f"n{number}.json").write_bytes(encode(node))
    files = [f"n{number}.json" for number in range(1, 6)]
    assert gate(images["skylake-avx512"], "--host-probe", *files) == 1
    table = capsys.readouterr().out
    assert "Fails on 5 of 5 hosts (2 of 2 kinds)" in table
    assert "n[1-3] (3 nodes)" in table
    assert main(["hosts", ".", "--write", "kinds"]) == 0
    assert capsys.readouterr().out.startswith("5 nodes: 2 kinds\n")
    assert json.loads((project / "kinds" / "kind1.json").read_text())["count"] == 3


def test_different_hosts_of_one_name_are_told_apart(images, project):
    for number, cpu in enumerate(("skylake-avx512", "broadwell"), 1):
        node = msgspec.structs.replace(describe_host(Knowledge(), cpu=cpu, kernel="4.18"), name="node")
        (project / f"n{number}.json").write_bytes(encode(node))
    report = report_of(images["skylake-avx512"], "--host-probe", "n1.json", "n2.json")
    verdicts = {each["host"]["name"]: each["verdict"] for each in report["requirements"]}
    assert verdicts == {"node": "compatible", "node (2)": "incompatible"}
    assert gate(images["skylake-avx512"], "--write-baseline", "b.json", "--host-probe", "n2.json") == 0
    assert gate(images["skylake-avx512"], "--baseline", "b.json", "--host-probe", "n2.json") == 0
    assert gate(images["skylake-avx512"], "--baseline", "b.json", "--host-probe", "n1.json", "n2.json") == 1


def test_a_directory_without_hosts_is_exit_2(project, capsys):
    assert main(["hosts", "."]) == 2
    assert "probe -o DIR/%h.json" in capsys.readouterr().err


def test_each_architecture_is_held_against_the_image_of_its_platform(project):
    foreign = ImageBuilder(architecture="arm64", entrypoint=("/run.sh",)).layer({"run.sh": "#!/none\n"})
    own = ImageBuilder(entrypoint=("/opt/app/solver",)).layer({"opt/app/solver": program("x86-64")})
    write_layout(project / "index", own, foreign)
    (project / "imgcheck.toml").write_text(
        '[[host]]\nname = "x"\ncpu = "haswell"\n[[host]]\nname = "a"\narch = "aarch64"\n'
    )
    report = report_of(f"oci:{project / 'index'}", "--no-store")
    rules = {each["host"]["name"]: [f["rule"] for f in each["findings"]] for each in report["requirements"]}
    assert "ARCH001" not in rules["x"] + rules["a"]
    report = report_of(f"oci:{project / 'index'}", "--no-store", "--platform", "linux/amd64")
    verdicts = {each["host"]["name"]: each["verdict"] for each in report["requirements"]}
    assert verdicts["a"] == "incompatible"


@pytest.mark.parametrize("reference", ["-", "docker-archive:-", "oci-archive:-:app", "./fifo"])
def test_a_stream_is_not_held_against_hosts_of_several_architectures(project, reference, capsys):
    os.mkfifo("fifo")
    (project / "imgcheck.toml").write_text(BOTH + '[[host]]\nname = "arm"\ncpu = "graviton2"\n')
    assert gate(reference, "--no-store") == 2
    assert "--platform OS/ARCH" in capsys.readouterr().err


def test_names_that_are_no_utf_8_are_spelt_out_in_every_format(images, project):
    strange = os.fsdecode(b"caf\xe9")
    (project / strange).mkdir()
    (project / "imgcheck.toml").rename(project / strange / "imgcheck.toml")
    (project / strange / "Dockerfile").write_text("FROM scratch\nCOPY solver /opt/app/solver\n")
    options = ["--policy", f"{strange}/imgcheck.toml", "--dockerfile", f"{strange}/Dockerfile"]
    formats = ("json", "sarif", "junit", "markdown", "github", "gitlab", "table")
    outputs = [f"-o{name}=report.{name}" for name in formats]
    assert gate(images["skylake-avx512"], *options, *outputs, "--", "/opt/app/solver", strange) == 1
    for name in ("json", "sarif", "github"):
        assert "caf\\xe9" in Path(f"report.{name}").read_text().replace("\\\\", "\\").replace("%5C", "\\")
    report = report_of(images["broadwell"], *options, "--", f"/bin/{strange}")
    assert report["image"]["command"] == ["/opt/app/solver", "/bin/caf\\xe9"]


@pytest.mark.parametrize("how", ["--entry", "--"])
def test_a_program_whose_name_is_no_utf_8_is_found(project, how):
    name = b"/bin/caf\xe9"
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        member = archive.gettarinfo(program("skylake-avx512"), os.fsdecode(name[1:]))
        with program("skylake-avx512").open("rb") as file:
            archive.addfile(member, file)
    write_layout(project / "build", ImageBuilder(command=("/none",)).layer(layer.getvalue()))
    report = report_of("oci:build", "--no-store", how, os.fsdecode(name))
    found = {place["path"]: place["reach"] for each in report["findings"] for place in each["evidence"]}
    assert found["/bin/caf\\xe9"] == "entry"


@pytest.fixture
def foreign(project: Path) -> Path:
    """A project that requires an x86-64 host of an image for arm64, whose one program has no loader."""
    (project / "imgcheck.toml").write_text('[[host]]\nname = "x"\ncpu = "haswell"\nkernel = "4.18"\n')
    app = compile_c("int main(void) { return 0; }", compiler="aarch64-linux-gnu-gcc").read_bytes()
    layer = {"app": File(app, mode=0o755)}
    write_layout(project / "build", ImageBuilder(architecture="arm64", entrypoint=("/app",)).layer(layer))
    return project


ACCEPTED = {
    "waiver": '[[waiver]]\nrule = "ARCH001"\nreason = "qemu"\nexpires = 2999-01-01\n',
    "severity": '[severity]\nARCH001 = "info"\n',
}


@pytest.mark.parametrize("how", ACCEPTED)
def test_accepting_another_architecture_hides_nothing_else(foreign, how):
    assert {each["rule"] for each in report_of("oci:build", "--no-store")["findings"]} == {"ARCH001"}
    with (foreign / "imgcheck.toml").open("a") as policy:
        policy.write(ACCEPTED[how])
    report = report_of("oci:build", "--no-store")
    assert report["verdict"] == "incompatible"
    assert {"ARCH001", "LIB001"} <= {each["rule"] for each in report["findings"]}


def test_a_baseline_holds_what_another_architecture_hid(foreign):
    assert gate("oci:build", "--no-store", "--write-baseline", "b.json") == 0
    accepted = json.loads(Path("b.json").read_text())["findings"]
    assert [each["rule"] for each in accepted] == ["ARCH001", "LIB001"]
    only = {"findings": [each for each in accepted if each["rule"] == "ARCH001"]}
    Path("b.json").write_text(json.dumps(json.loads(Path("b.json").read_text()) | only))
    assert gate("oci:build", "--no-store", "--baseline", "b.json") == 1


def test_probe_expands_the_short_host_name(project, monkeypatch):
    monkeypatch.setattr("platform.node", lambda: "node7.cluster.example")
    assert main(["probe", "--cpu", "haswell", "-o", "%h-100%%.json"]) == 0
    assert (project / "node7-100%.json").exists()
    monkeypatch.setattr("platform.node", lambda: "../../etc/x")
    assert main(["probe", "--cpu", "haswell", "-o", "%h.json"]) == 0
    assert not (project / ".." / ".." / "etc").exists()
