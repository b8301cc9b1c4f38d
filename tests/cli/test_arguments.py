"""The argument grammar that people's scripts lean on."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from imgcheck.cli import main, options
from imgcheck.cli.files import refuse_unwritable
from imgcheck.cli.gate import exit_status
from imgcheck.cli.host_files import split_host_probe
from imgcheck.documents import HostProfile, encode
from imgcheck.errors import UsageError


def test_bare_host_probe_means_this_machine_wherever_it_stands():
    assert split_host_probe(["--host-probe", "app:1"]) == ["--host-probe=", "app:1"]
    assert split_host_probe(["app:1", "--host-probe"]) == ["app:1", "--host-probe="]


def test_json_files_after_host_probe_are_hosts_and_the_first_other_token_is_the_image():
    split = split_host_probe(["--host-probe", "a.json", "b.json", "app:1"])
    assert split == ["--host-probe=a.json", "--host-probe=b.json", "app:1"]


def test_a_file_holding_a_host_profile_needs_no_json_name(tmp_path):
    host = tmp_path / "node1"
    host.write_bytes(encode(HostProfile(schema_version="1.0", name="node1")))
    other = tmp_path / "image.tar"
    other.write_bytes(b"{}")
    assert split_host_probe(["--host-probe", str(host), str(other)]) == [f"--host-probe={host}", str(other)]


def test_options_after_host_probe_are_not_taken_for_files():
    assert split_host_probe(["--host-probe", "-o", "x.json"]) == ["--host-probe=", "-o", "x.json"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["image", "x.tar", "--host-probe="],
        ["image", "x.tar", "--host-probe", ""],
        ["image", "--host-probe", "", "x.tar"],
        ["image", "x.tar", "--host-probe", "--store", ""],
        ["image", "x.tar", "--host-probe", "--rules="],
        ["image", "x.tar", "--host-probe", "--policy="],
        ["image", "x.tar", "--host-probe", "--baseline="],
        ["image", "x.tar", "--host-probe", "--platform="],
        ["image", "x.tar", "--host-probe", "--trust-attached", "--attached-digest="],
        ["preflight", "x.tar", "--host", ""],
        ["preflight", "x.tar", "--host="],
        ["preflight", "x.tar", "--store", ""],
        ["preflight", "x.tar", "--cache", ""],
        ["profile", "x.tar", "-o", ""],
        ["store", "ls", "--store", ""],
    ],
    ids=" ".join,
)
def test_an_empty_value_is_refused_as_it_may_be_an_unset_variable(arguments, capsys):
    assert main(arguments) == 2
    assert " is empty" in capsys.readouterr().err


def test_a_missing_file_of_credentials_is_exit_2(tmp_path, capsys):
    assert main(["profile", "x.tar", "--authfile", str(tmp_path / "no.json")]) == 2
    assert "no.json: no such file" in capsys.readouterr().err


def test_a_missing_host_file_is_exit_2(tmp_path, capsys):
    assert main(["image", str(tmp_path), "--host-probe", str(tmp_path / "no.json")]) == 2
    assert "no.json: No such file or directory" in capsys.readouterr().err


def test_a_newer_major_schema_is_exit_2_with_the_way_out(tmp_path, capsys):
    host = tmp_path / "host.json"
    host.write_text(json.dumps({"kind": "host", "schema_version": "2.0", "name": "x"}))
    assert main(["image", str(tmp_path), "--host-probe", str(host)]) == 2
    error = capsys.readouterr().err
    assert "newer than this imgcheck reads" in error
    assert "upgrade imgcheck" in error


def test_unknown_fields_of_a_document_are_ignored(tmp_path):
    from imgcheck.documents import decode

    data = json.dumps({"kind": "host", "schema_version": "1.9", "name": "x", "new": [1]}).encode()
    assert decode(data, HostProfile, "x").name == "x"


def test_a_table_goes_to_stdout_unless_a_format_claims_it():
    formats = ("table", "json")
    assert [o.format for o in options.outputs(["json=x"], formats)] == ["table", "json"]
    assert [o.format for o in options.outputs(["json"], formats)] == ["json"]


def test_a_dash_is_standard_output():
    assert options.outputs(["json=-", "table=x"], ("table", "json"))[0] == ("json", None)


def test_two_formats_for_one_file_are_refused_with_both_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["image", "x.tar", "-o", "json=out", "-o", "table=./a/../out"]) == 2
    assert "-o json=out and -o table=a/../out write to the same file" in capsys.readouterr().err


def test_a_report_and_a_baseline_do_not_write_to_the_same_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["image", "x.tar", "--host-probe", "-o", "json=x", "--write-baseline", "./x"]) == 2
    assert "--write-baseline x and -o json=x write to the same file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [["image", "-o", "json={}"], ["profile", "-o", "{}"], ["image", "--host-probe", "--write-baseline", "{}"]],
    ids=["report", "profile", "baseline"],
)
@pytest.mark.parametrize(("file", "cause"), [("absent/x", "there is no directory"), (".", "this is a directory")])
def test_a_file_that_cannot_be_written_is_refused_before_the_image_is_read(options, file, cause, tmp_path, capsys):
    command, *rest = (option.format(tmp_path / file) for option in options)
    assert main([command, "no-such-image.tar", *rest]) == 2
    error = capsys.readouterr().err
    assert cause in error and str(tmp_path / file) in error


def test_a_file_is_refused_where_its_directory_lets_nobody_write():
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o555)
        user = os.geteuid()
        try:
            if user == 0:  # who may write everywhere
                os.seteuid(65534)
            with pytest.raises(UsageError, match="it may not be written there"):
                refuse_unwritable("-o x", Path(directory, "x"))
        finally:
            os.seteuid(user)
        refuse_unwritable("-o /dev/null", Path("/dev/null"))


@pytest.mark.parametrize("name", ["sarif", "junit=x.xml"])
def test_a_format_of_a_report_without_a_host_says_how_to_name_one(name, capsys):
    assert main(["image", "x.tar", "--no-policy", "-o", name]) == 2
    error = capsys.readouterr().err
    assert f"-o {name}: this is for an image held against a host" in error
    assert "--host-probe HOST.json" in error and "imgcheck.toml" in error


@pytest.mark.parametrize(
    "options", [["--runtime", "docker"], ["--entry", "/app"], ["--require-gpu"], ["--dockerfile", "x"], ["--", "/app"]]
)
def test_what_only_a_host_gives_a_meaning_is_refused_without_one(options, capsys):
    assert main(["image", "x.tar", "--no-policy", *options]) == 2
    assert "held against a host, and none is named" in capsys.readouterr().err


def test_an_unknown_runtime_is_named_before_anything_else(capsys):
    assert main(["image", "x.tar", "--no-policy", "--runtime", "dokcer"]) == 2
    assert "did you mean docker?" in capsys.readouterr().err


@pytest.mark.parametrize("values", [["xml"], ["json="], ["json", "table"], ["json=-", "table"], ["json=x", "json=x"]])
def test_impossible_outputs_are_usage_errors(values):
    with pytest.raises(UsageError):
        options.outputs(values, ("table", "json"))


@pytest.mark.parametrize(
    ("verdict", "fail_on", "allow_unknown", "status"),
    [
        ("compatible", "degraded", False, 0),
        ("degraded", "fail", False, 0),
        ("degraded", "degraded", False, 1),
        ("unknown", "fail", False, 3),
        ("unknown", "fail", True, 0),
        ("unknown", "unknown", True, 1),
        ("at-risk", "fail", False, 0),
        ("at-risk", "risk", False, 1),
        ("incompatible", "fail", False, 1),
        ("incompatible", "never", False, 0),
        ("unknown", "never", False, 3),
    ],
)
def test_exit_status_follows_verdict_and_fail_on(verdict, fail_on, allow_unknown, status):
    assert exit_status(SimpleNamespace(verdict=verdict), fail_on, allow_unknown) == status


def test_an_unknown_command_is_exit_2(capsys):
    assert main(["frobnicate"]) == 2
    assert "unknown command 'frobnicate'" in capsys.readouterr().err


def test_a_defect_of_ours_never_looks_like_a_verdict(monkeypatch, capsys):
    monkeypatch.delenv("IMGCHECK_DEBUG", raising=False)
    monkeypatch.setattr("imgcheck.cli.rules.run", lambda arguments: 1 / 0)
    assert main(["rules"]) == 2
    assert "internal error: ZeroDivisionError" in capsys.readouterr().err


def test_version_is_told_however_it_is_asked_for(capsys):
    for word in ("-V", "--version", "version"):
        assert main([word]) == 0
    assert len(set(capsys.readouterr().out.splitlines())) == 1


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["image", "x.tar", "--host-prob", "n.json"], "did you mean --host-probe?"),
        (["image", "x.tar", "--runtimes", "docker"], "did you mean --runtime?"),
        (["image", "x.tar", "--format", "json"], "did you mean -o?"),
        (["image", "x.tar", "-f", "json"], "did you mean -o?"),
        (["image", "x.tar", "--require"], "did you mean --require-gpu?"),
        (["preflight", "x.sif", "--schedular", "none"], "did you mean --scheduler?"),
        (["probe", "--cpus", "haswell"], "did you mean --cpu?"),
        (["image", "x.tar", "--list-option", "docker"], "imgcheck image --help"),
        (["image", "x.tar", "--host-probe", "haswell"], "--host-probe takes files that `imgcheck probe -o HOST.json`"),
        (["image", "x.tar", "--host-probe", "-o", "report.json"], "did you mean -o json=report.json?"),
        (["image", "x.tar", "--host-probe", "-o", "jsn=x"], "did you mean -o json=x?"),
        (["image", "x.tar", "--host-probe", "-o", "json="], "did you mean -o json, or -o json=FILE?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistyped_option_is_told_with_what_was_meant(arguments, hint, capsys):
    assert main(arguments) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize("command", ["probe", "profile"])
@pytest.mark.parametrize("value", ["json", "json=x.json", "table"])
def test_a_format_is_no_file_for_the_one_document_of_a_command(command, value, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, *["x.tar"] * (command == "profile"), "-o", value]) == 2
    assert "a FILE is named here, no format" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_called_like_a_format_can_be_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["probe", "--cpu", "haswell", "-o", "./json"]) == 0
    assert (tmp_path / "json").is_file()


def test_the_two_names_of_the_option_for_hosts_mean_the_same():
    assert split_host_probe(["--host", "a.json", "app:1"]) == ["--host-probe=a.json", "app:1"]
    assert split_host_probe(["app:1", "--host"]) == ["app:1", "--host-probe="]
    with pytest.raises(UsageError, match="--host is empty"):
        split_host_probe(["app:1", "--host", ""])


@pytest.mark.parametrize("command", ["image", "preflight"])
def test_the_command_behind_the_dashes_is_in_the_usage(command, capsys):
    assert main([command, "--help"]) == 0
    usage, *rest = capsys.readouterr().out.split("\n\n")
    assert usage.endswith("[-- CMD ...]")
    assert any("-- CMD ..." in part for part in rest)


def _fails(monkeypatch, error):
    def fail(_arguments):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise error from None

    monkeypatch.setattr("imgcheck.cli.rules.run", fail)
    return main(["rules"])


@pytest.mark.parametrize("error", [KeyError("limbo"), OSError("closed"), UsageError("no")])
def test_ctrl_c_is_told_whatever_its_exception_became(error, monkeypatch, capsys):
    import imgcheck.cli.rules  # noqa: F401

    assert _fails(monkeypatch, error) == 130
    assert capsys.readouterr().err == "imgcheck: interrupted\n"
