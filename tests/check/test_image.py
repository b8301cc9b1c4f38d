"""What of the image itself leaves the verdict open: damaged files, a command from nowhere, no program at all."""

import msgspec
import pytest

from imgcheck.check.context import Context
from imgcheck.check.image import check
from imgcheck.check.run import Request
from imgcheck.check.run import check as check_image
from imgcheck.documents.facts import CodeFacts, Linkage
from imgcheck.documents.image import FileRecord, ImageConfig, Script, TreeIndex, Unstartable
from imgcheck.documents.shell_commands import ShellCommand, packed
from imgcheck.errors import UsageError
from imgcheck.loader.roots import find_roots
from tests.check.contexts import KNOWLEDGE, code, context, cpu, outcome

PROGRAM = CodeFacts(1000, Linkage(64, "x86_64", "executable", interpreter="/lib64/ld-linux-x86-64.so.2"))
DAMAGED = CodeFacts(10, error="truncated ELF header")


def with_unreadable(before: Context, executable: bool, *paths: str) -> Context:
    files = tuple(
        FileRecord(r.path, r.object, r.layer, executable if r.path in paths else True) for r in before.image.files
    )
    image = msgspec.structs.replace(before.image, files=files, unreadable=dict.fromkeys(paths, "truncated ELF header"))
    return msgspec.structs.replace(before, image=image, roots=find_roots(image))


def test_a_damaged_program_that_the_command_reaches_leaves_the_verdict_open():
    answers = check(with_unreadable(context({"/app": DAMAGED, "/bin/p": PROGRAM}), True, "/app"))
    assert outcome(answers, "IMG001") == "unknown"
    assert [finding.severity for finding in answers.findings if finding.rule == "IMG001"] == ["info"]


def test_a_damaged_library_counts_without_an_executable_bit():
    answers = check(with_unreadable(context({"/lib/liba.so.1": DAMAGED, "/bin/p": PROGRAM}), False, "/lib/liba.so.1"))
    assert outcome(answers, "IMG001") == "unknown"


def test_damaged_test_data_of_some_package_is_only_worth_knowing():
    answers = check(
        with_unreadable(context({"/src/testdata/elf": DAMAGED, "/bin/p": PROGRAM}), False, "/src/testdata/elf")
    )
    assert outcome(answers, "IMG001") == "ok"


def test_a_damaged_program_that_nothing_reaches_is_only_worth_knowing():
    before = context({"/opt/old": DAMAGED, "/bin/p": PROGRAM}, reaches={"/opt/old": "unreached"})
    assert outcome(check(with_unreadable(before, True, "/opt/old")), "IMG001") == "ok"


def test_a_program_that_the_user_may_not_read_leaves_the_verdict_open():
    before = context({"/bin/p": PROGRAM})
    image = msgspec.structs.replace(before.image, unreadable={"/usr/bin/secret": "Permission denied"})
    assert outcome(check(msgspec.structs.replace(before, image=image)), "IMG001") == "unknown"


@pytest.mark.parametrize(
    ("directory", "expected"),
    [("/", "unknown"), ("/usr", "unknown"), ("/usr/bin", "unknown"), ("/usr/b", "ok"), ("/home/me", "ok")],
)
def test_a_directory_with_programs_that_the_user_may_not_read_leaves_the_verdict_open(directory: str, expected: str):
    before = context({"/bin/p": PROGRAM})
    image = msgspec.structs.replace(before.image, unreadable={directory: "Permission denied"})
    assert outcome(check(msgspec.structs.replace(before, image=image)), "IMG001") == expected


@pytest.mark.parametrize(
    ("directory", "command", "expected"),
    [
        ("/opt/app", ("/opt/app/run",), "unknown"),
        ("/srv", ("bin/run",), "unknown"),  # from WORKDIR
        ("/opt/tools", ("tool",), "unknown"),  # in PATH
        ("/opt/tools", ("p",), "ok"),  # which is found elsewhere
        ("/bin", ("p",), "unknown"),
        ("/root", ("p",), "ok"),
        ("/opt/ap", ("/opt/app/run",), "risk"),
    ],
)
def test_a_directory_that_may_not_be_read_does_not_count_as_empty(
    directory: str, command: tuple[str, ...], expected: str
):
    config = ImageConfig(command=command, working_directory="/srv", environment=("PATH=/opt/tools/bin:/bin:/usr/bin",))
    programs = {"/usr/bin/p": PROGRAM} if directory != "/bin" else {"/sbin/q": PROGRAM}
    before = context(programs, config=config)
    image = msgspec.structs.replace(before.image, unreadable={directory: "Permission denied"})
    answers = check(msgspec.structs.replace(before, image=image, roots=find_roots(image)))
    found = {outcome(answers, "IMG001"), outcome(answers, "IMG002")}
    assert found - {"ok"} == {expected} - {"ok"}


def test_a_secret_that_is_no_program_does_not_matter():
    before = context({"/bin/p": PROGRAM})
    image = msgspec.structs.replace(before.image, unreadable={"/etc/shadow": "Permission denied"})
    assert outcome(check(msgspec.structs.replace(before, image=image)), "IMG001") == "ok"


def test_a_command_that_no_layer_holds_is_a_risk_with_the_runtimes_words():
    before = context({"/bin/p": PROGRAM}, config=ImageConfig(command=("/opt/typo",)))
    answers = check(msgspec.structs.replace(before, roots=find_roots(before.image)))
    assert outcome(answers, "IMG002") == "risk"
    [finding] = [finding for finding in answers.findings if finding.rule == "IMG002"]
    assert finding.predicted_error == 'exec: "/opt/typo": stat /opt/typo: no such file or directory'


@pytest.mark.parametrize(
    ("path", "entrypoint", "command", "expected"),
    [
        ("/usr/local/bin:/usr/bin", (), ("typo",), "fail"),
        ("/opt/app/bin:/usr/bin", (), ("typo",), "fail"),  # the image has programs there
        ("/venv/bin:/usr/bin", (), ("typo",), "risk"),  # of which it has nothing: a volume may
        ("/usr/bin", (), ("linked",), "risk"),  # leads out of the image
        ("/usr/bin", (), ("/usr/bin/typo",), "risk"),
        ("/usr/bin", ("tini", "--"), ("typo",), "fail"),
        ("/usr/bin", ("/entry.sh",), ("typo",), "risk"),
        ("/usr/bin", (), ("bare",), "risk"),  # Apptainer's shell reads it
        ("/usr/bin", (), ("p",), "ok"),
    ],
)
def test_a_name_that_path_does_not_have_fails_unless_something_may_bring_it(
    path: str, entrypoint: tuple[str, ...], command: tuple[str, ...], expected: str
):
    config = ImageConfig(entrypoint=entrypoint, command=command, environment=(f"PATH={path}",))
    before = context(
        {"/bin/sh": PROGRAM, "/usr/bin/p": PROGRAM, "/usr/bin/tini": PROGRAM, "/opt/app/bin/q": PROGRAM},
        config=config,
        tree=TreeIndex(
            symlinks={"/usr/bin/linked": "/cvmfs/tool"},
            files=("/usr/bin/bare",),
            scripts=(Script("/entry.sh", ("/bin/sh",), packed([ShellCommand(("typo",))])),),
        ),
    )
    assert outcome(check(msgspec.structs.replace(before, roots=find_roots(before.image))), "IMG002") == expected


NOT_STARTING = [
    (Unstartable("typo", "absent"), "risk", 'exec: "typo": executable file not found in $PATH'),
    (Unstartable("typo", "absent", by="tini"), "risk", "tini: typo: No such file or directory"),
    (Unstartable("typo", "absent", by="/entry.sh"), "risk", "entry.sh: typo: not found"),
    (
        Unstartable("set -o pipefail", "unknown-option", by="/entry.sh"),
        "risk",
        "entry.sh: set: Illegal option -o pipefail",
    ),
    (Unstartable("/a", "not-executable", "/a"), "fail", 'exec: "/a": permission denied'),
    (Unstartable("a", "not-executable", "/bin/a"), "fail", 'exec: "a": executable file not found in $PATH'),
    (Unstartable("/a", "not-executable", "/a", by="/entry.sh"), "fail", "entry.sh: /a: Permission denied"),
    (Unstartable("/a", "no-format", "/a"), "risk", "exec /a: exec format error"),
    (Unstartable("/a", "no-interpreter", "/a", "/bin/bash"), "fail", "exec /a: no such file or directory"),
    (Unstartable("/a", "no-interpreter", "/a", "/cvmfs/bash"), "risk", "exec /a: no such file or directory"),
    (Unstartable("/a", "no-interpreter", "/a", "/bin/bash", "sh"), "fail", "sh: /a: not found"),
    (Unstartable("/a", "carriage-return", "/a", "/bin/sh"), "fail", "exec /a: no such file or directory"),
    (
        Unstartable("/a", "carriage-return", "/a", "/usr/bin/env bash"),
        "fail",
        "env: 'bash\\r': No such file or directory",
    ),
    (Unstartable("/a", "carriage-return", "/a", "/bin/bash -e"), "fail", "/bin/bash: invalid option"),
]


@pytest.mark.parametrize(("what", "severity", "error"), NOT_STARTING)
def test_a_command_that_does_not_start_is_told_with_its_cause(what: Unstartable, severity: str, error: str):
    before = context({"/bin/p": PROGRAM}, config=ImageConfig(command=("/bin/p",)))
    roots = msgspec.structs.replace(find_roots(before.image), unstartable=(what,))
    answers = check(msgspec.structs.replace(before, roots=roots))
    [finding] = [finding for finding in answers.findings if finding.rule == "IMG002"]
    assert (finding.severity, finding.predicted_error) == (severity, error)
    assert "{" not in finding.title + finding.why + finding.remedy


def test_a_name_that_looks_like_a_placeholder_stays_as_it_is():
    before = context({"/bin/p": PROGRAM}, config=ImageConfig(command=("{remedy}",)))
    [finding] = check(msgspec.structs.replace(before, roots=find_roots(before.image))).findings
    assert finding.title == "The command does not start: {remedy}"


def test_a_command_that_is_there_is_fine():
    before = context({"/bin/p": PROGRAM}, config=ImageConfig(command=("/bin/p",)))
    assert outcome(check(msgspec.structs.replace(before, roots=find_roots(before.image))), "IMG002") == "ok"


@pytest.mark.parametrize("command", ["/opt/app", "app"])
def test_a_command_that_could_not_be_read_is_not_said_to_be_missing(command: str):
    config = ImageConfig(command=(command,), environment=("PATH=/usr/bin:/opt",))
    answers = check(with_unreadable(context({"/opt/app": DAMAGED, "/bin/p": PROGRAM}, config=config), True, "/opt/app"))
    assert outcome(answers, "IMG002") == "ok"
    assert outcome(answers, "IMG001") == "unknown"


def test_with_a_command_from_outside_every_file_may_be_reached():
    image = context({"/bin/p": PROGRAM}, config=ImageConfig(command=("/mounted/app",))).image
    assert find_roots(image).in_part


def test_an_image_without_programs_is_never_called_compatible():
    image = context({}).image
    report = check_image(image, [cpu("haswell", gpus=("none",))], Request(runtimes=("docker",)), KNOWLEDGE)
    assert report.verdict == "unknown"
    assert [result.rule for result in report.checks if result.outcome == "unknown"] == ["IMG003"]


def test_an_image_whose_programs_could_not_be_read_is_not_called_empty():
    answers = check(context({"/bin/p": DAMAGED}))
    assert [result.reason for result in answers.checks if result.rule == "IMG003"] == [
        "none of the image's programs and libraries could be read"
    ]


def test_an_entry_that_the_image_lacks_is_the_users_mistake():
    image = context({"/bin/p": PROGRAM}).image
    with pytest.raises(UsageError, match="--entry /bin/q"):
        check_image(image, [cpu("haswell")], Request(entries=("/bin/q",)), KNOWLEDGE)


@pytest.mark.parametrize(("runtime", "missing"), [("docker", []), ("apptainer", ["LIB001"])])
def test_docker_hands_the_users_words_to_the_entrypoint_and_apptainer_may_start_them(
    runtime: str, missing: list[str]
) -> None:
    job = CodeFacts(1000, Linkage(64, "x86_64", "executable", needed=("libgone.so.1",)))
    files = {"/bin/entry": PROGRAM, "/bin/job": job}
    image = context(files, config=ImageConfig(entrypoint=("/bin/entry",))).image
    request = Request(command=("/bin/job",), runtimes=(runtime,))
    report = check_image(image, [cpu("haswell", gpus=("none",))], request, KNOWLEDGE)
    assert [f.rule for f in report.findings if f.severity == "fail" and f.subject == "libgone.so.1"] == missing


def test_words_after_an_entrypoint_that_the_image_lacks_are_told_where_they_may_start_by_themselves() -> None:
    files = {"/bin/ok": code(type="executable")}
    config = ImageConfig(entrypoint=("/bin/ok",))
    image = context(files, config=config).image
    for runtime, command, expected in (
        ("apptainer", ("python", "train.py"), "risk"),
        ("apptainer", ("--epochs", "3"), "ok"),
        ("docker", ("python", "train.py"), "ok"),
        ("apptainer", ("/bin/ok",), "ok"),
    ):
        report = check_image(image, [cpu("haswell")], Request(runtimes=(runtime,), command=command), KNOWLEDGE)
        found = next(each for each in report.checks if each.rule == "IMG002")
        assert (runtime, command, found.outcome) == (runtime, command, expected)
    both = check_image(
        image, [cpu("haswell")], Request(runtimes=("docker", "apptainer"), command=("nosuch",)), KNOWLEDGE
    )
    assert {cell.runtime: cell.verdict for cell in both.cells} == {"docker": "compatible", "apptainer": "at-risk"}
