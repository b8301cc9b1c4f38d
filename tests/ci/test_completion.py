"""Completion scripts, asked by the shells themselves."""

import subprocess

import pytest

from imgcheck.cli import COMMANDS, main, options
from tests.tools import need, run


def script(shell: str, capsys) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def bash(capsys, *words: str) -> list[str]:
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _imgcheck; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", script("bash", capsys) + ask], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("imgcheck", "com"), ["completion"]),
        (("imgcheck", "image", "--host-p"), ["--host-probe"]),
        (("imgcheck", "image", "-o", "sa"), ["sarif"]),
        (("imgcheck", "image", "--fail-on", "r"), ["risk"]),
        (("imgcheck", "image", "--runtime", "charlie"), ["charliecloud"]),
        (("imgcheck", "preflight", "--runtime", "charlie"), ["charliecloud"]),
        (("imgcheck", "preflight", "--scheduler", "slurm-t"), ["slurm-task"]),
        (("imgcheck", "explain", "CPU003"), ["CPU003"]),
        (("imgcheck", "image", "app"), []),
    ],
)
def test_bash_offers_what_fits(words, offered, capsys):
    assert bash(capsys, *words) == offered


def test_every_command_lists_its_options_without_doing_anything(capsys):
    from imgcheck.cli.completion import _commands

    commands = {command.name: command for command in _commands()}
    assert list(commands) == list(COMMANDS)
    names = {name for option in commands["image"].options for name in option.names}
    assert {"--policy", "--no-policy", "--baseline", "--verbose", "-o"} <= names
    assert options.LIST_OPTIONS not in names


def test_an_unknown_shell_is_exit_2(capsys):
    assert main(["completion", "tcsh"]) == 2


@pytest.mark.slow
def test_fish_offers_what_fits(capsys, tmp_path):
    file = tmp_path / "imgcheck.fish"
    file.write_text(script("fish", capsys))
    fish = need("fish")
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}

    def offered(line: str) -> list[str]:
        done = run(fish, "--no-config", "-c", f"source {file}; complete -C '{line}'", env=environment)
        return [each.split("\t")[0] for each in done.stdout.splitlines()]

    assert offered("imgcheck compl") == ["completion"]
    assert "--host-probe" in offered("imgcheck image --ho")
    assert offered("imgcheck image -o sa") == ["sarif"]
    assert offered("imgcheck explain CPU003") == ["CPU003"]


@pytest.mark.slow
def test_zsh_reads_the_script_and_defines_the_completion(capsys, tmp_path):
    (tmp_path / "_imgcheck").write_text(script("zsh", capsys))
    load = (
        f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -D; autoload +X _imgcheck; print $_comps[imgcheck]"
    )
    done = run(need("zsh"), "-f", "-c", load, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert done.stdout.strip() == "_imgcheck"
    assert done.stderr == ""
