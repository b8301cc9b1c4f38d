"""imgcheck.toml: what it says is taken at its word, and what it says wrongly is named with file, key and way out."""

import datetime
import os
from pathlib import Path

import pytest

from imgcheck.errors import PolicyError
from imgcheck.knowledge import Knowledge
from imgcheck.policy.document import FILE, Waiver, find_policy, read_policy

KNOWLEDGE = Knowledge()
WAIVER = '[[waiver]]\nrule = "CPU001"\nreason = "x"\nexpires = 2030-01-01\n'


def read(directory: Path, text: str):
    path = directory / FILE
    path.write_text(text)
    return read_policy(path, KNOWLEDGE)


def test_a_whole_policy_is_read(tmp_path):
    policy = read(
        tmp_path,
        'fail_on = "risk"\nruntimes = ["docker"]\n[[host]]\nname = "a"\ncpu = "broadwell"\ngpus = ["A100", "H100"]\n'
        '[severity]\nGPU004 = "info"\n' + WAIVER,
    )
    assert (policy.fail_on, policy.runtimes, policy.severity) == ("risk", ("docker",), {"GPU004": "info"})
    assert policy.host[0].gpus == ("A100", "H100")
    assert policy.waiver[0].expires == datetime.date(2030, 1, 1)


def test_the_nearest_policy_upwards_is_found(tmp_path):
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_policy(below) is None
    (tmp_path / FILE).write_text("")
    assert find_policy(below) == tmp_path / FILE
    (tmp_path / "a" / FILE).write_text("")
    assert find_policy(below) == tmp_path / "a" / FILE


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.symlink_to("nowhere"), "cannot be reached: No such file"),
        (lambda path: path.symlink_to(path), "cannot be reached: Too many levels"),
        (lambda path: path.mkdir(), "not a regular file"),
        (lambda path: os.mkfifo(path), "not a regular file"),
    ],
    ids=["broken link", "looping link", "directory", "fifo"],
)
def test_a_policy_that_is_no_file_is_not_passed_by(tmp_path, make, words):
    make(tmp_path / FILE)
    below = tmp_path / "a"
    below.mkdir()
    with pytest.raises(PolicyError, match=words) as error:
        find_policy(below)
    assert error.value.message.startswith(f"{tmp_path / FILE}: ")
    assert "--no-policy" in error.value.hint


def test_a_link_to_a_policy_is_followed(tmp_path):
    (tmp_path / "shared.toml").write_text("")
    (tmp_path / FILE).symlink_to("shared.toml")
    assert find_policy(tmp_path) == tmp_path / FILE


@pytest.mark.parametrize(
    ("text", "words", "way_out"),
    [
        ("fail_on = 'sometimes'", "fail_on: Invalid enum value 'sometimes'", "never, fail, risk, unknown, degraded"),
        ("fial_on = 'risk'", "unknown key 'fial_on'", "did you mean fail_on?"),
        ("[[host]]\ncpu = 'haswell'\n[[host]]\ndriverr = '535'", "host 2: unknown key 'driverr'", "driver?"),
        ("[[host]]\ngpus = 'A100'", "host 1.gpus: Expected `array`, got `str`", "docs/policy.md"),
        ("[[waiver]]\nrule = 'CPU001'\nreason = 'x'", "waiver 1: expires is missing", "the last day"),
        (WAIVER.replace("2030-01-01", "'soon'"), "waiver 1.expires: Invalid RFC3339", "docs/policy.md"),
        (WAIVER.replace('"x"', '" "'), "waiver 1: reason is empty", "who accepts it"),
        (WAIVER + 'path = ""\n', "waiver 1: path is empty", "leave it away"),
        ('baseline = ""\n', "baseline is empty", "leave it away"),
        ('[[host]]\ncpu = "haswell"\n[[host]]\ncpu = ""\n', "host 2: cpu is empty", "leave it away"),
        (WAIVER.replace("CPU001", "CPU999"), "waiver 1: rule: no rule 'CPU999'", "imgcheck rules"),
        ("[severity]\nNO1 = 'info'", "severity: no rule 'NO1'", "imgcheck rules"),
        ("[severity]\nCPU001 = 'ok'", "Invalid enum value 'ok'", "one of fail, risk, degraded, info"),
        ("[[host]]\nglibc = 2.17", "host 1.glibc: Expected `str`, got `float`", 'write it in quotes: glibc = "2.17"'),
        (
            "[[host]]\nkernel = 3.10",
            "host 1.kernel: Expected `str`, got `float`",
            'kernel = "3.1", or if that was meant "3.10"',
        ),
        ("[[host]]\ndriver = 535", "host 1.driver: Expected `str`, got `int`", 'write it in quotes: driver = "535"'),
        ("fail_on = 1", "fail_on: Expected `str`, got `int`", "docs/policy.md"),
        ("runtimes = ['apptaner']", "runtimes: unknown runtime 'apptaner'", "did you mean apptainer?"),
        ("[[host]]\ncpu = 'haswell'\nruntimes = ['x']", "host 1: runtimes: unknown runtime 'x'", "one of"),
        ("fail_on = ", "not valid TOML", "docs/policy.md"),
    ],
)
def test_what_is_wrong_is_named_with_file_key_and_way_out(text, words, way_out, tmp_path):
    with pytest.raises(PolicyError) as error:
        read(tmp_path, text)
    assert error.value.message.startswith(str(tmp_path / FILE))
    assert words in error.value.message
    assert way_out in error.value.hint


def test_a_policy_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PolicyError, match="No such file") as error:
        read_policy(tmp_path / "no.toml", KNOWLEDGE)
    assert "leave --policy away" in error.value.hint


def test_the_way_out_of_an_unreadable_policy_names_no_option_that_was_not_given(tmp_path):
    with pytest.raises(PolicyError, match="Is a directory") as error:
        read_policy(tmp_path, KNOWLEDGE)
    assert error.value.hint == "it must be a file that you may read"


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("", "/anything", True),
        ("/opt/*", "/opt/a", True),
        ("/opt/*", "/opt/a/b", False),
        ("/opt/**", "/opt/a/b", True),
        ("/opt/**", "/optional", False),
        ("/opt/**/x.so", "/opt/x.so", True),
        ("/opt/**/x.so", "/opt/a/b/x.so", True),
        ("**/x.so*", "/usr/lib/x.so.1", True),
        ("/a.so", "/aXso", False),
        ("/lib?", "/lib6", True),
        ("/lib?", "/lib/", False),
    ],
)
def test_a_star_stays_in_its_directory_and_two_do_not(pattern, path, matches):
    assert Waiver("CPU001", "x", datetime.date(2030, 1, 1), pattern).matches(path) is matches
