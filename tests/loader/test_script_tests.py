"""Branches of scripts: what dash and bash run is among what is found, and what is called certain is what they run."""

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from imgcheck.documents.image import ImageConfig, ImageProfile
from imgcheck.loader.closure import Roots
from imgcheck.loader.roots import find_roots
from imgcheck.loader.variables import Given, Setting, setting_files, variables_given
from imgcheck.profile.texts import read_script
from tests.loader.builder import Root
from tests.loader.walk import profile_of

PROGRAMS = ("p", "q", "r", "s")
LAST = "z"
WORDS = ("", "a", "b", "-a", "-x1", "p", "q", "12", "a b")
_SHOWS = """#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int c, char **v) {
  char *name = strrchr(v[0], '/') ? strrchr(v[0], '/') + 1 : v[0];
  int log = open(getenv("LOG"), O_WRONLY | O_APPEND);
  if (write(log, name, 1) != 1) return 9;
  return strchr(getenv("FAILING"), name[0]) != 0;
}
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageProfile:
    root = Root(tmp_path_factory.mktemp("branches") / "root")
    shutil.copy2(Path("/bin/sh").resolve(), root.at("/sh"))
    root.at("/sh").rename(root.at("/usr/bin/dash"))
    root.link("/bin", "usr/bin")
    root.link("/bin/sh", "dash")
    root.program("/usr/bin/bash")
    for name in (*PROGRAMS, LAST):
        root.program(f"/usr/bin/{name}", code=_SHOWS)
    return profile_of(root.path)


def roots_of(image: ImageProfile, text: str, arguments: tuple[str, ...], shell: str) -> Roots:
    script = read_script(f"#!/bin/{shell}\n{text}".encode())
    assert script is not None
    scripts = (structs.replace(script, path="/run"),)
    config = ImageConfig(entrypoint=("/run",), command=arguments, environment=("PATH=/usr/bin", "MODE=a"))
    tree = structs.replace(image.tree, scripts=scripts)
    return find_roots(structs.replace(image, tree=tree, config=config))


def found(image: ImageProfile, text: str, arguments: tuple[str, ...], shell: str = "dash") -> tuple[set[str], set[str]]:
    """The programs that are said to start, and those of them that certainly do."""
    roots = roots_of(image, text, arguments, shell)
    started = {Path(path).name for path in roots.entries} & {*PROGRAMS, LAST}
    return started, started - {Path(path).name for path in roots.perhaps}


def ran(image: ImageProfile, shell: str, text: str, arguments: tuple[str, ...], failing: str) -> set[str]:
    """The programs that a shell ran."""
    root = Path(image.reference.removeprefix("dir:"))
    with tempfile.NamedTemporaryFile() as log:
        environment = {"PATH": f"{root}/usr/bin:/usr/bin", "MODE": "a", "LOG": log.name, "FAILING": failing}
        done = subprocess.run(
            [f"/bin/{shell}", "-c", text, "/run", *arguments],
            env=environment, capture_output=True, check=False, timeout=20,
        )  # fmt: skip
        assert b"yntax" not in done.stderr, (text, done.stderr)
        return set(Path(log.name).read_text())


TESTS = st.one_of(
    st.builds('[ "${}" {} "{}" ]'.format, st.sampled_from((1, 2, "MODE", "UNSET")), st.sampled_from(("=", "!=")),
              st.sampled_from(WORDS)),
    st.builds("[ {} {} ]".format, st.sampled_from(("-n", "-z")),
              st.sampled_from(('"$1"', '"$2"', '"${1#-}"', '"${1%?}"', '"${1##*[ab]}"', '"$3"', '"$UNSET"'))),
    st.builds("[ $# {} {} ]".format, st.sampled_from(("-eq", "-gt", "-lt", "-ne")), st.integers(0, 3)),
    st.sampled_from(('[ "${1#-}" != "$1" ]', "[ -x /usr/bin/none ]", "test $# -ge 1", "p", "! q", "true", "false",
                     '[ "$1" = a -o "$1" = b ]', '[ "$1" = a ] && [ "$2" ]', '[ ! "$1" = p ]', "! [ $# = 2 ]",
                     '[ "$1" = a ] || [ "$1" = b ] && [ "$MODE" = a ]', 's && [ "$1" ]', "{ [ $# = 1 ]; }")),
)  # fmt: skip
COMMANDS = st.one_of(
    st.sampled_from(PROGRAMS),
    st.sampled_from(('"$@"', "[ $# -gt 0 ] && shift", "set -- p", 'set -- b "$@"', "exec r", "exit", "exit 3", "MODE=b",
                     "f", "UNSET=a", ": ${UNSET:=a}", 'g "$1"', "( p; exit )", "p || true", "q && r")),
)  # fmt: skip

IN_LOOPS = st.sampled_from((*PROGRAMS, "break", "continue", "exec r", "exit", "MODE=b", "[ $# -gt 0 ] && shift", "f",
                            'UNSET="$1"', '[ "$x" = a ] && break', '[ "$x" = b ] && continue', '"$x"'))  # fmt: skip


def _blocks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, min_size=1, max_size=2).map("\n".join)
    patterns = st.sampled_from(("a", "a|b", "-*", "'a b'", "[pq]", '"$2"', "?", "*", '""', "''|a"))
    branches = st.lists(st.builds("{}) {} ;;".format, patterns, body), min_size=1, max_size=3).map("\n".join)
    return st.one_of(
        st.builds("if {}; then {}\nfi".format, TESTS, body),
        st.builds("if {}; then {}\nelse {}\nfi".format, TESTS, body, body),
        st.builds("if {}; then {}\nelif {}; then {}\nelse {}\nfi".format, TESTS, body, TESTS, body, body),
        st.builds('case "${}" in {}\nesac'.format, st.sampled_from((1, "MODE", "UNSET")), branches),
        st.builds("{} && {}".format, TESTS, inner),
        st.builds("{} ||\n{}".format, TESTS, inner),
        st.builds("{} && {} || {}".format, TESTS, inner, inner),
        st.builds("{} && {{ {}; }}".format, TESTS, st.sampled_from(PROGRAMS)),
        # What users name is what a script is for, also where a loop runs it on a condition that is not worked out.
        st.builds("for x in 1 2; do {}\ndone".format, body.filter(lambda text: '"$@"' not in text)),
    )


LOOPS = st.builds(
    'while {}; do x="$1"; shift\n{}\ndone'.format,
    st.sampled_from(("[ $# -gt 0 ]", '[ -n "$1" ]', "test $# != 0", '[ $# -ge 1 ] && [ "$1" != q ]')),
    st.lists(st.recursive(IN_LOOPS, _blocks, max_leaves=4), min_size=1, max_size=3).map("\n".join),
)


SCRIPTS = st.builds(
    f"f() {{{{ {{}}\n}}}}\ng() {{{{ {{}}\n}}}}\n{{}}\n{LAST}\n".format,
    st.recursive(st.sampled_from((*PROGRAMS, "exit", "exec s")), _blocks, max_leaves=4),
    st.recursive(st.sampled_from(PROGRAMS), _blocks, max_leaves=3),
    st.lists(st.recursive(COMMANDS, _blocks, max_leaves=8) | LOOPS, min_size=1, max_size=4).map("\n".join),
)


@settings(max_examples=150, deadline=None)
@given(SCRIPTS, st.lists(st.sampled_from(WORDS[1:]), max_size=3).map(tuple), st.sampled_from(("", "pq", "rs", "pqrs")))
@example('f() { p\n}\n[ "$1" = a ] || f && q\nz\n', ("a",), "")
@example('[ "$1" = b ] && p || q\nz\n', ("a",), "")
@example('for x in 1 2; do "$@"\nset -- p\ndone\nz\n', (), "")
@example('if [ "$1" = a ]; then shift; fi\nif [ "$1" = a ]; then p; else q; fi\nz\n', ("a",), "")
def test_what_a_shell_runs_is_found_and_what_is_certain_runs(
    image: ImageProfile, text: str, arguments: tuple[str, ...], failing: str
) -> None:
    started, certain = found(image, text, arguments)
    run = ran(image, "dash", text, arguments, failing)
    assert run <= started, (run, started)
    # Where a script ends early on a condition that cannot be told, what it has besides is still what it is for.
    assert certain <= run or LAST not in run, (certain, run)


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ('case "$1" in\n  a) exec p ;;\n  b) exec q ;;\n  *) exec "$@" ;;\nesac\n', "b", "q"),
        ('case "$1" in\n  a) exec p ;;\n  b) exec q ;;\n  *) exec "$@" ;;\nesac\n', "r a", "r"),
        ('if [ "$1" = "a" ]; then\n  p\nelif [ "$1" = b ]; then\n  exec q\nelse\n  exec r\nfi\ns\n', "a", "ps"),
        ('if [ "${1#-}" != "$1" ]; then set -- p "$@"; fi\nexec "$@"\n', "-a", "p"),
        ('if [ "${1#-}" != "$1" ]; then set -- p "$@"; fi\nexec "$@"\n', "q", "q"),
        ("if [ $# -eq 0 ]; then exec p; fi\nexec q\n", "", "p"),
        ("[ $# -gt 0 ] || exec p\nexec q\n", "a", "q"),
        ('case "$1" in *) exec p ;; a) exec q ;; esac\n', "a", "p"),
        ('case "$1" in *) p ;; a) q ;; esac\nr\n', "a", None),
        ('case "$(uname -m)" in x86_64) exec p ;; *) exec q ;; esac\n', "", "p"),
        ('[ "$(uname -m)" = x86_64 ] && exec p\nexec q\n', "", "p"),
        ('[ -n "$MODE" ] && p\nq\n', "", "pq"),
        ('if [ -z "$1" ]; then echo usage; exit 1; fi\np\n', "", ""),
        ('usage() { echo usage; exit 1; }\n[ -n "$1" ] || usage\np\n', "", ""),
        ('main() {\n  if [ "$1" = a ]; then p; else q; fi\n}\nmain "$@"\n', "a", "p"),
        ('if [ -x /usr/bin/p ] && [ "$1" != b ]; then exec p; fi\nexec q\n', "b", "q"),
        ('for x in a b; do\n  if [ "$x" = "$1" ]; then exec p; fi\ndone\nq\n', "c", None),
        ('while [ $# -gt 0 ]; do case "$1" in a) shift; q ;; *) break ;; esac; done\nexec "$@"\n', "a p", "pq"),
        ('while test -n "$1"; do case "$1" in a) shift 2; continue ;; esac; "$1"; shift; done\ns\n', "a b p q", "pqs"),
        ('f() { while [ $# != 0 ]; do x="$1"; shift; g "$x"; done; }\ng() { "$1"; }\nf p q\n', "", "pq"),
        ("while [ $# -gt 0 ]\ndo\n  shift\n  while [ $# -gt 0 ]; do shift; p; done\n  q\ndone\nr\n", "a b", None),
        ('while [ "$1" ]; do [ -f /x ] && break; shift; p; done\nr\n', "a", None),
        ('while [ "$1" = a ]; do shift; p; done\n"$@"\n', "a a q b", "pq"),
        ("while [ $# -gt 0 ]; do shift; p; done & q\n", "a", None),
        ("while true; do p; if q; then break; fi; r; done\n", "", None),
        ("for x in 1 2; do p; continue; r; done\n", "", None),
        ('if [ "$UNSET" = a ]; then p; else q; fi\nr\n', "", None),
        ('if [ "$1" = b -a "$(id -u)" = 0 ]; then p; else q; fi\n', "a", "q"),
        ('if [ "$1" = a ] || grep -q x /y; then exec p; fi\nq\n', "a", "p"),
        ('if [ \\( "$1" = b \\) -o \\( "$1" = a -a -n "$2" \\) ]; then p; else q; fi\n', "a c", "p"),
        ('if [ "$1" = "(" ]; then p; elif [ ")" = "$2" ]; then q; else r; fi\n', "( )", "p"),
        ("if true; then exec p; fi\nq\n", "", "p"),
        ('run=false\n[ "$1" = a ] && run=true\nif ! $run; then exec q; fi\nif ${run}; then exec p; fi\n', "a", "p"),
        ("if $1; then p; else q; fi\n", "p", None),
        ("if p; ! false; then q; else r; fi\n", "", "pq"),
        ('x=\ncase "$x" in a) exec q ;; "") ;; *) exit 1 ;; esac\nexec p\n', "", "p"),
        ("case \"$1\" in a | '') exec p ;; *) exec q ;; esac\n", "", "p"),
        (': "${A=}" ${B:=p}\nexec "$A$B"\n', "", "p"),
        ('[ -n "${B:=p}" ] && q\nexec $B\n', "", "pq"),
        ("C=$(echo ${B:=p})\nexec ${B:-q}\n", "", "q"),
        ('if [ -z "$(which nosuch)" ]; then exec p; fi\nexec q\n', "", None),
        ('V=$(command -v nosuch || true)\nif [ -n "$V" ]; then exec q; else exec p; fi\n', "", None),
        ('[ ! "$(command -v nosuch)" ] && exec p\nexec q\n', "", None),
        ('if [ -n "$(command -v p)" ]; then exec p; fi\nexec q\n', "", "p"),
        ("V=$(command -v p)\nexec ${V:-q}\n", "", "p"),
        ("if [ -n $UNSET ]; then exec p; fi\nexec q\n", "", None),
        ("if test -n ${1}; then exec p; fi\nexec q\n", "a", None),
        ('if [ -n "$UNSET" ]; then exec p; fi\nexec q\n', "", None),
        ('if [ -n $UNSET -a "$1" = b ]; then exec p; fi\nexec q\n', "a", "q"),
    ],
)
def test_the_branch_is_taken_that_the_shell_takes(
    image: ImageProfile, shell: str, text: str, arguments: str, expected: str | None
) -> None:
    started, certain = found(image, text, tuple(arguments.split()))
    run = ran(image, shell, text, tuple(arguments.split()), "")
    assert certain <= run <= started
    if expected is not None:
        assert started == run == set(expected)


@pytest.mark.parametrize(
    ("test", "arguments"),
    [
        ('[[ "$1" == a* && -n $2 ]]', "ab c"), ('[[ $1 != a || ! $2 ]]', "a"), ('[[ "$1" =~ ^a ]]', "ab"),
        ('[ "${1:0:1}" = "-" ]', "-p"), ('[[ ${1:1:2} == "bc" ]]', "abcd"), ("[[ $# == 2 ]]", "a b"),
        ('[[ "$1" = "]]" ]]', "a"), ("[[ ( $1 = b || -n $2 ) && ! ( $1 = c ) ]]", "a b"),
        ('[[ $1 = b && $(id -u) = 0 ]]', "a"), ("(( $# == 1 ))", "a"), ('[ "$1" = "a" ] && [[ "$2" == b ]]', "a b"),
    ],
)  # fmt: skip
def test_what_bash_has_besides(image: ImageProfile, test: str, arguments: str) -> None:
    text = f"if {test}; then p; else q; fi\n"
    started, certain = found(image, text, tuple(arguments.split()), "bash")
    assert certain <= ran(image, "bash", text, tuple(arguments.split()), "") <= started
    assert (started == certain) == ("=~" not in test and "((" not in test)


@pytest.mark.parametrize(
    "text",
    [
        "case $1 in a*) p ;;& ab) exec q ;; *) r ;; esac\n", "case $1 in a*) p ;& x) exec q ;; *) r ;; esac\n",
        "if [[ 010 -eq 8 ]]; then p; else q; fi\n", "M=1\n: $((M+=1))\nif [ $M = 2 ]; then p; else q; fi\n",
        "M=1\nX=$((M++))\n[[ $M == 2 ]] && exec p\nq\n",
    ],
)  # fmt: skip
def test_what_bash_has_besides_of_branches_and_numbers(image: ImageProfile, text: str) -> None:
    started, certain = found(image, text, ("ab",), "bash")
    assert certain <= ran(image, "bash", text, ("ab",), "") <= started


@pytest.mark.parametrize(
    ("text", "arguments", "certain"),
    [
        ('c=(p a)\ncommand "${c[@]}"\n', "", "p"),
        ('c=(a b)\nexec p "${c[@]}"\n', "", "p"),
        ('set -e\nc=()\n"${c[@]}" p\nq\n', "", "pq"),
        ('set -e\nc=()\nif s; then c+=(-v); fi\np "${c[@]}"\nq\n', "", "pq"),
        ("set -e\nif s; then c=p; else c=q; fi\n$c x\nr\n", "", "r"),
        ('if s; then set -- q "$@"; fi\nexec "$@"\n', "p", ""),
        ('if s; then set -- nice -n 5 "$@"; fi\nexec "$@"\n', "p", "p"),
        ('if s; then shift; fi\n"$@"\n', "p", ""),
        ('if s; then exec p "$@"; fi\nexec p\n', "a", "p"),
    ],
)
def test_a_program_is_certain_whichever_words_it_gets(
    image: ImageProfile, text: str, arguments: str, certain: str
) -> None:
    started, told = found(image, text, tuple(arguments.split()), "bash")
    for failing in ("", "s"):
        assert told - {"s"} == set(certain) <= ran(image, "bash", text, tuple(arguments.split()), failing) <= started


@pytest.mark.parametrize(
    "test", ["[[ a = a ]]", "! [[ $# = 9 ]]", '[ "$MODE" == a ]', "[ a = a ] && [[ -n x ]]", "[[ -n x || -z x ]]"]
)
def test_what_dash_lacks_fails_there(image: ImageProfile, test: str) -> None:
    text = f"if {test}; then p; else q; fi\n"
    started, certain = found(image, text, ("a",))
    assert started == certain == ran(image, "dash", text, ("a",), "")
    assert found(image, text, ("a",), "bash")[1] == ran(image, "bash", text, ("a",), "")


@pytest.mark.parametrize(
    ("text", "dies"),
    [
        ("set -o pipefail\np\n", True), ("set -euo pipefail\np\n", True), ("set -e -o pipefail; p\n", True),
        ("(set -o pipefail) 2>/dev/null && set -o pipefail\np\n", False), ("set -eu\np\n", False),
        ('if [ -n "$BASH_VERSION" ]; then set -o pipefail; fi\np\n', False), ("p\nexit\nset -o pipefail\n", False),
    ],
)  # fmt: skip
def test_dash_ends_where_it_is_to_set_pipefail(image: ImageProfile, text: str, dies: bool) -> None:
    assert ran(image, "dash", text, (), "") == (set() if dies else {"p"})
    for shell, told in (("dash", ["set -o pipefail"] if dies else []), ("bash", [])):
        assert [what.word for what in roots_of(image, text, (), shell).unstartable] == told


@pytest.mark.parametrize("file", setting_files(), ids=lambda each: each.id)
def test_what_a_file_of_the_system_sets_is_open(image: ImageProfile, file: Setting) -> None:
    assert all(source.startswith("https://") for source in file.sources)
    for path in file.paths:
        text = f'. {path}\nif [ -z "${file.names[0]}" ]; then p; else q; fi\n'
        assert found(image, text, ()) == ({"p", "q"}, set())
        assert found(image, 'if [ -z "$OTHER" ]; then p; else q; fi\n', ())[1] == {"p"}


@pytest.mark.parametrize("given_by", variables_given(), ids=lambda each: each.id)
def test_nothing_is_concluded_of_a_variable_that_others_may_set(image: ImageProfile, given_by: Given) -> None:
    assert all(source.startswith("https://") for source in given_by.sources)
    names = {pattern.replace("*", "X").replace("[0-4]", "1") for pattern in given_by.names}
    for name in names - {"PATH", "PWD"}:  # these are known
        assert found(image, f'if [ -n "${name}" ]; then p; else q; fi\n', ()) == ({"p", "q"}, set()), name


@pytest.mark.parametrize("nested", [1, 40, 300])
def test_deeply_nested_branches_are_read_in_time(image: ImageProfile, nested: int) -> None:
    text = 'if [ "$1" = a ]; then\n' * nested + "p\n" + "fi\n" * nested
    began = time.process_time()
    started, _ = found(image, text, ("a",))
    assert time.process_time() - began < 5
    assert started == {"p"} or nested > 200
