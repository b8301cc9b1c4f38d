"""Shell text to the commands in it; what bash and dash really run is the measure."""

import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from imgcheck.documents.facts import CodeFacts, Linkage
from imgcheck.documents.image import FileRecord, ImageConfig, ImageProfile, LayerInfo, Platform, TreeIndex
from imgcheck.documents.shell_commands import ShellCommand
from imgcheck.loader.roots import find_roots
from imgcheck.loader.shell import (
    COMMANDS_LIMIT,
    MARKS,
    PIPEFAIL,
    SAME,
    read_commands,
    with_whole_names,
    without_conditions,
)
from imgcheck.loader.shell_words import UNKNOWN
from imgcheck.profile.texts import read_script
from tests.tools import need

_SET_E_A_B = [("set", "-e"), ("set", "--", "a", "b")]


def words(text: str) -> list[tuple[str, ...]]:
    return [each.words for each in read_commands(text) if not each.decides and each.words not in MARKS]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  'c d' \"e f\" g\\ h", [("a", "b", "c d", "e f", "g h")]),
        ("a; b & c | d && e || f\ng", [("a",), ("b",), ("c",), ("d",), ("e",), ("f",), ("g",)]),
        ("a # b\n# c\nd#e", [("a",), ("d#e",)]),
        ("a >x 2>&1 <y b >>z &>w c", [("a", "b", "c")]),
        ("a \\\n  b", [("a", "b")]),
        ("X=1 Y='2 3' a", [("X=1", "Y=2 3", "a")]),
        ("X=(a b)\nX+=(c)", [("X=a b",), ("X+= c",)]),
        ('a $X ${Y} "$Z" $1 "$@" $*', [("a", "${X}", "${Y}", "${Z}", "${1}", "${@}", "${@}")]),
        ("a '$X' \\$X \"\\$X\"", [("a", "$$X", "$$X", "$$X")]),
        ("a ${X:-b/$Y} ${X:+c} ${X:?no} ${X-d}", [("a", "${X:-b/${Y}}", "${X:+c}", "${X}", "${X:-d}")]),
        ("a ${X%/*} ${X##*/} ${#X} $((1+2)) $? $!", [("a", "$(dirname ${X})", "${X##*/}", *[UNKNOWN] * 4)]),
        ('a "$(dirname "$0")" `readlink -f b`', [("a", "$(dirname ${0})", "b")]),
        ("a $(b c)", [("b", "c"), ("a", UNKNOWN)]),
        ("echo x; [ -f y ]; test z; printf w; true", []),
        ("cat <<E\nnot a command\nE\na", [("cat",), ("a",)]),
        ("cat <<'E' <<-F\nx\nE\ny\n\tF\na", [("cat",), ("a",)]),
        ("[[ a < b && -n $c ]] && d", [("d",)]),
        ("((x = 1)); for ((;;)); do a; done", [(f"x={UNKNOWN}",), ("a",)]),
        ("set -e; set -- a b; shift", [("set", "-e"), ("set", "--", "a", "b"), ("shift",)]),
        ("time a; ! b", [("a",), ("b",)]),
        ("a <(b) c", [("b",), ("a", UNKNOWN, "c")]),
        ("while read x; do a; done < <(b)\nexec > >(c)", [(f"x={UNKNOWN}",), ("a",), ("b",), ("c",), ("exec",)]),
        ("2>/dev/null a\n3<x 4>&1 b 5 >y", [("a",), ("b", "5")]),
        ("mapfile -t L; readarray -d x M; a", [(f"L={UNKNOWN}",), (f"M={UNKNOWN}",), ("a",)]),
        ("read -r -p text X Y; read; printf -v Z a; printf b", [(f"{n}={UNKNOWN}",) for n in ("X", "Y", "REPLY", "Z")]),
        ("let n+=1; getopts ab: o; enable -n echo", [(f"{n}={UNKNOWN}",) for n in ("n", "OPTARG", "OPTIND", "o")]),
        (
            "a ${X:-$(b)} $(($(c) + 1))\ncat <<E\n$(d)\nE\ncat <<'F'\n$(e)\nF",
            [("b",), ("c",), ("a", "${X:-${?}}", UNKNOWN), ("cat",), ("d",), ("cat",)],
        ),
        ("cat <<E\n`a b` \\`c\\` \\$(d) $(e `f`)\nE", [("cat",), ("a", "b"), ("f",), ("e", UNKNOWN)]),
        ("set -eu -o pipefail -- a b; set -e; set c", [PIPEFAIL, *_SET_E_A_B, ("set", "-e"), ("set", "--", "c")]),
        ("set -euo pipefail; set +eo pipefail d", [PIPEFAIL, ("set", "-e"), ("set", "+e"), ("set", "--", "d")]),
        ("set -uo errexit; set -ux; set +o errexit", [("set", "-e"), ("set", "+e")]),
        ("set -o; set +o; set; case `(set -o) 2>/dev/null` in *posix*) a;; esac", [("a",)]),
        ("exec {fd}>x; a {fd}<&-", [("exec",), ("a",)]),
        ("PATH=~/a:~:$PATH:~/b", [("PATH=${HOME}/a:${HOME}:${PATH}:${HOME}/b",)]),
        (
            "declare -A m=([x]=a); declare -A n=([x]=a [y]=b)",
            [("declare", "-A", "m=a"), ("declare", "-A", f"n={UNKNOWN}")],
        ),
        ("a x/*@(.txt|.sh) +([0-9])y", [("a", "x/**", "*y")]),
    ],
)
def test_words_and_separators(text: str, expected: list[tuple[str, ...]]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "conditional"),
    [
        ("a; b\nc & d | e", ""),
        ("set -e\ncd /x && a", ""),
        ("a && b || c", "bc"),
        ("a &&\n # why\n b\nc", "b"),
        ("[[ $x ]] && a || b; c", "ab"),
        ("if a; then b; elif c; then d; else e; fi\nf", "bcde"),
        ("while a; do b; done; c", "ab"),
        ("for x in 1 2; do a; done; b", ""),
        ("for x in $Y; do a; done; b", "a"),
        ("for x in *.sh; do a; done; b", "a"),
        ("while true; do a; done", ""),
        ("while :\ndo a; done; b", ""),
        ("case $x in a) b;; c|d) e ;; *) f; esac; g", "bef"),
        ("case $x in (a) b;; esac\nc", "b"),
        ("{ a; b; }; (c; d)", ""),
        ("if x; then { a; }; (b); fi", "ab"),
        ("[ -f x ] && a; b", "a"),
    ],
)
def test_what_depends_on_something_else(text: str, conditional: str) -> None:
    commands = [each for each in read_commands(text) if len(each.words[0]) == 1]
    assert {each.words[0] for each in commands if each.conditional or each.when} == set(conditional)


@pytest.mark.parametrize(
    ("text", "forgiven"),
    [
        ("a || true; b", "a"),
        ("a 2>/dev/null || :\nb", "a"),
        ("a || echo 'a failed'\nb", "a"),
        ("(a || true)\nb", "a"),
        ("a || b", "a"),
        ("a || exec b", "a"),
        ("a || { b; }; c", "a"),
        ("if a; then b; elif ! c; then d; else e; fi", "ac"),
        ("until a; do b; done; c", "a"),
        ("a || exit 1; b", ""),
        ("a || die no; b", ""),
        ("a || echo no && exit 1; b", ""),
        ("a || { echo no; exit 1; }; b", ""),
        ("a && b && c; d", ""),
        ("a && echo done\nb", ""),
        ("a && [ -d /x ] && echo there\nb", ""),
        ("a | b; c & d; ! e; f", "e"),
    ],
)
def test_commands_without_which_the_text_goes_on(text: str, forgiven: str) -> None:
    assert "".join(each.words[0] for each in read_commands(text) if each.forgiven) == forgiven


@pytest.mark.parametrize(
    "text", ["f() { a; b; }; c", "function f { a\nb\n}\nc", "f ()\n{\n a; b\n}\nc", "f() (a; b)\nc"]
)
def test_functions_keep_their_commands(text: str) -> None:
    expected = [ShellCommand(("a",), False, "f"), ShellCommand(("b",), False, SAME), ShellCommand(("c",))]
    assert list(read_commands(text)) == expected


def test_of_scripts_of_a_system_only_that_there_are_conditions_is_kept() -> None:
    text = "f() { if [ $1 = a ]; then a; exit; fi; b; }\n[ $2 ] && c || d\nf\n"
    found = list(with_whole_names(without_conditions(read_commands(text))))
    assert [(each.words[0], each.conditional, each.function) for each in found] == [
        ("a", True, "f"), ("b", False, "f"), ("c", True, ""), ("d", True, ""), ("f", False, ""),
    ]  # fmt: skip
    assert not any(each.when or each.decides for each in found)


@pytest.mark.parametrize("text", ["a; 'b", 'a\n"b', "a; $(b", "a; ${b", "a; `b", "cat <<E\nx\n", "a; $((1"])
def test_text_that_breaks_off_is_told(text: str) -> None:
    assert read_commands(text)[-1] == ShellCommand((UNKNOWN,), conditional=True)


def test_more_commands_than_are_kept_are_told() -> None:
    found = words("a\n" * 10 * COMMANDS_LIMIT)
    assert len(found) == COMMANDS_LIMIT + 1
    assert found[-1] == (UNKNOWN,)


_PIECES = st.sampled_from([
    "a", "$X", '"$@"', "'", '"', "`", "$(", ")", "(", "{", "}", "${", "<<E", "\n", ";", "&&", "||", "|", "if ", "then ",
    "fi", "case x in ", "a)", ";;", "esac", "for x in ", "do ", "done", "f()", "[[ ", "]]", "((", "))", "\\", "#", " ",
    "X=", "X+=(", ">", "<", "&", "E", "while ", "@(", "*", "$", "!",
    "set ", "trap ", "alias ", "read ", "printf ", "getopts ", "let ", "mapfile ", "exec ", "shift ", "cd ", "export ",
    "-o ", "+o ", "-e ", "-v ", "-- ", "- ", "=",
])  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(_PIECES, max_size=60).map("".join)))
def test_any_text_is_read_to_an_end(text: str) -> None:
    assert all(command.words for command in read_commands(text))


_HOSTILE = ["(", "$(", "((", "${a", "a=(", "a=()", "`", '"', "\\\"", "<<E ", "case x in ", "if ", "{ ", "[[ ", "x(",
            "f() ", "'", "@(", "$((", "a<(", "#", " ", "\\", "${a:-", "a b\n", "&&", "x=$x",
            "a\nif [ $? -ne 0 ]; then ", "a\n[ $? -ne 0 ] && ", "if ! a; then ", "while [ $# -gt 0 ]; do shift; done;",
            "while a; do shift; ", "x=$(a", "usage='" + 600 * "u" + "';"]  # fmt: skip


@pytest.mark.parametrize("piece", _HOSTILE)
def test_hostile_text_takes_time_by_its_length_alone(piece: str) -> None:
    started = time.process_time()
    read_commands(piece * (60_000 // len(piece)))
    assert time.process_time() - started < 5


_STUB = '#!/bin/sh\necho "${0##*/}" >> "$STUB_LOG"\n'
_PROGRAMS = ("one", "two", "three", "four")
_SCRIPTS = [
    "one; two && three || four",
    'set -e\nif [ "$1" = x ]; then one; else two; fi\nexec three "$@"',
    'case "$1" in a|x) one ;; *) two ;; esac\nfour',
    "f() { one; g; }\ng() { two; }\nf | three",
    "cat <<E\none\nE\ntwo",
    "cat <<E\n`one` \\`three\\` \\$(four) $(echo `two`) ' `four` '\nE",
    "for i in one two; do $i; done; three",
    "X=one; $X; Y=${Z:-two}; $Y",
    'set -- three a; "$@"; shift; four',
    "eval 'one; two'",
    "sh -c 'one && two'; (three)",
    'while [ -z "$done" ]; do one; done=1; done; `command -v two`; four',
    "env A=1 one; command two; nice -n 1 three",
    'x="one two"; $x; "three"',
    "{ one; } > /dev/null 2>&1; two &\nwait",
    "if one; then two; fi; [ -f /none ] || three",
    "cd / && one; ! two; time -p three",
]


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize("text", _SCRIPTS)
def test_what_a_real_shell_runs_is_among_what_is_found(text: str, shell: str, tmp_path: Path) -> None:
    if "time" in text and shell == "dash":
        text = text.replace("time -p ", "")
    log = tmp_path / "log"
    log.touch()
    for name in _PROGRAMS:
        (tmp_path / name).write_text(_STUB)
        (tmp_path / name).chmod(0o755)
    script = tmp_path / "script"
    script.write_text(text + "\n")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "STUB_LOG": str(log)}
    subprocess.run([need(shell), script, "x"], env=environment, cwd=tmp_path, check=False, timeout=20)
    run = set(log.read_text().split())
    assert run
    assert run <= _followed(text)


_DYING = [
    ("one; two", True), ("set -e; one; two", False), ("set -euo pipefail; one; two", False),
    ("set -o errexit; one; two", False), ("set -e; set +e; one; two", True), ("set -e; (one); two", False),
    ("set -e; one | three; two", True), ("set -e; set -o pipefail; one | three; two", False),
    ("set -o pipefail; one | three; two", True), ("set -e; ! one; two", True),
    ("set -e; one && echo yes\ntwo", True), ("set -e; one && three; two", True), ("one && two", False),
    ("set -e; one || three; two", True), ("one || exit 1; two", False), ("one || { echo no; exit 3; }; two", False),
    ("one & two", True), ("set -e; one & two", True), ("set -e; f() { one; }; f; two", False),
    ("f() { one; }; f; two", True), ("set -e; f() { one; three; }; f || echo no; two", True),
    ("set -e; if one; then three; fi; two", True), ("set -e; while one; do three; done; two", True),
    ("eval 'set -e; one'; two", False), ("exec one; two", False),
    ("V=$(one); two", True), ("set -e; V=$(one); two", False), ('set -e; V="x $(one -v 2>&1)"; echo "$V"; two', False),
    ("set -e; V=`one`; two", False), ("set -e; export V=$(one); two", True), ("set -e; echo $(one); two", True),
    ("set -e; V=$(one) three; two", True), ("set -e; f() { V=$(one); }; f; two", False),
    ("set -e; V=$(one | cat); two", True), ("set -e; V=$(three | one); two", False),
    ("set -e; set -o pipefail; V=$(one | cat); two", False), ("set -e; V=$(one) W=$(three); two", True),
    ("set -e; V=$(three) W=$(one); two", False), ("set -e; V=$(one || echo no); two", True),
    ("set -e; V=$(! one); two", True), ("set -e; V=$(one) || true; two", True), ("V=$(one) || exit 1; two", False),
    ("set -e; V=$(one) && three; two", True), ("set -e; V=$(exec one); two", False),
    ("set -e; if V=$(one); then three; fi; two", True), ("if ! V=$(one 2>&1); then echo no; exit 1; fi; two", False),
    ("if ! one; then echo no; exit 1; fi; two", False), ("if ! one; then echo no; fi; two", True),
    ("if one; then three; else exit 1; fi; two", False), ("if one; then exit 1; fi; two", True),
    ("if one\nthen\n  three\nelse\n  echo no >&2\n  exit 3\nfi\ntwo", False),
    ("while ! one; do exec two; done", True),
    ("one\nif [ $? -ne 0 ]; then echo no; exit 1; fi; two", False), ("one\n[ $? -eq 0 ] || exit 1\ntwo", False),
    ("set -e; (one) 2>/dev/null || echo no; two", True), ("set -e; { one; } >/dev/null 2>&1; two", False),
    ("set -e; (cd / && one) || echo no; two", True), ("set -e; (one) || exit 1; two", False),
    ("set -e; { one; } || echo no; two", True), ("set -e; { one; }; two", False),
    ("set -e; for i in 1; do one; done || true; two", True), ("set -e; for i in 1; do one; done; two", False),
    ("set -e; if (one); then three; fi; two", True), ("set -e; if { one; }; then three; fi; two", True),
    ("set -e; (one) && echo yes; two", True), ("set -e; (one) & two", True), ("set -e; { one; } | three; two", True),
    ("set -e; f() { one; } ; f && three; two", True), ("set -e; { f() { one; }; } || true; f; two", False),
    ("one; if [ $? != 0 ]; then echo no; fi; two", True), ("one\n[ $? -ne 0 ] && echo no\ntwo", True),
    ('one\nif test "$?" -ne "0"; then\n exit 1\nfi\ntwo', False), ("one; [ $? = 0 ] && three; two", True),
]  # fmt: skip


# Debian 12's dash has no pipefail.
@pytest.mark.parametrize(
    ("text", "goes_on", "shell"),
    [(*case, shell) for case in _DYING for shell in ("bash", "dash") if shell == "bash" or "pipefail" not in case[0]],
)
def test_whether_a_shell_goes_on_where_a_program_dies(text: str, goes_on: bool, shell: str, tmp_path: Path) -> None:
    for name in _PROGRAMS:
        (tmp_path / name).write_text(_STUB if name != "one" else "#!/bin/sh\nkill -ILL $$\n")
        (tmp_path / name).chmod(0o755)
    log, script = tmp_path / "log", tmp_path / "script"
    log.touch()
    script.write_text(text + "\n")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "STUB_LOG": str(log)}
    subprocess.run([need(shell), script], env=environment, cwd=tmp_path, check=False, timeout=20, capture_output=True)
    assert ("two" in log.read_text().split()) == goes_on
    assert ("/bin/one" in find_roots(_image(text)).perhaps) == goes_on


def _followed(text: str) -> set[str]:
    return {path.rpartition("/")[2] for path in find_roots(_image(text)).entries}


def _image(text: str) -> ImageProfile:
    names = [f"/bin/{name}" for name in (*_PROGRAMS, "sh", "env", "nice", "cat")]
    script = read_script(f"#!/bin/sh\n{text}\n".encode())
    assert script is not None
    return ImageProfile(
        "1.0",
        "test",
        Platform(),
        ImageConfig(command=("/script", "x")),
        (LayerInfo(),),
        tuple(FileRecord(name, name, 0, executable=True) for name in names),
        dict.fromkeys(names, CodeFacts(1, Linkage(64, "x86_64", "executable"))),
        TreeIndex(scripts=(structs.replace(script, path="/script"),)),
    )


@pytest.mark.parametrize(
    ("word", "template"),
    [
        ("~/job", "${HOME}/job"), ("~", "${HOME}"), ("~app/job", f"{UNKNOWN}/job"), ("'~/job'", "~/job"),
        ("a~b", "a~b"), ("/opt/{a,b}/c", f"/opt/{UNKNOWN}/c"), ("/opt/{1..3}", f"/opt/{UNKNOWN}"), ("{}", "{}"),
        ("{a}", "{a}"), ("'{a,b}'", "{a,b}"),
    ],
)  # fmt: skip
def test_what_home_and_braces_stand_for(word: str, template: str) -> None:
    (command,) = read_commands(f"run {word}\n")
    assert command.words == ("run", template)


def test_braces_without_an_end_cost_no_time() -> None:
    (command,) = read_commands("run {" + "," * 60_000 + "\n")
    assert command.words[0] == "run"
