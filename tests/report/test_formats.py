"""Each format carries the finding, and none lets an image's text act."""

import dataclasses
import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import msgspec
import pytest

from imgcheck.documents import Report, decode
from imgcheck.documents.codec import encode
from imgcheck.documents.report import Cell, Evidence, HostSummary
from imgcheck.knowledge import Knowledge
from imgcheck.report.formats import FORMATS, Rendering
from imgcheck.report.history import Origins
from imgcheck.report.location import unplaced


@pytest.fixture
def rendering() -> Rendering:
    return Rendering(Knowledge())


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_emits_a_control_character_of_the_image(name, report, rendering):
    text = FORMATS[name](report, rendering)
    assert "\x1b" not in text
    assert name == "json" or "\u202e" not in text


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "json"])
def test_every_format_names_rule_and_remedy(name, report, rendering):
    text = FORMATS[name](report, rendering)
    assert "CPU001" in text
    assert "march=broadwell" in text.replace("\\", "")


def test_table_puts_the_verdict_first_and_the_unknown_last_before_the_runtimes(report, rendering):
    text = FORMATS["table"](report, rendering)
    order = ["INCOMPATIBLE", "It will fail", "Checked and fine", "Could not be checked", "Under each runtime"]
    positions = [text.index(words) for words in order]
    assert positions == sorted(positions)
    assert "[bold]" in text


def _under(report: Report, runtimes: Sequence[str], best: str = "incompatible") -> list[str]:
    """First lines of table and markdown where the first of `runtimes` has another verdict than the others."""
    verdicts = [best, *["incompatible"] * (len(runtimes) - 1)]
    cells = tuple(Cell("node1", *each) for each in zip(runtimes, verdicts, strict=True))
    made = msgspec.structs.replace(report, cells=cells, runtime=runtimes[0])
    return [
        FORMATS["table"](made, Rendering(Knowledge())).splitlines()[0],
        FORMATS["markdown"](made, Rendering(Knowledge())).splitlines()[2],
    ]


@pytest.mark.parametrize(
    ("runtimes", "best", "words"),
    [
        (("docker",), "incompatible", "docker"),
        (("docker", "podman"), "incompatible", "docker, podman"),
        (("docker", "podman", "apptainer", "udocker"), "incompatible", "each of 4 runtimes"),
        (("docker", "podman", "apptainer", "udocker"), "at-risk", "docker, the best of 4"),
    ],
)
def test_the_headline_names_all_runtimes_that_agree_and_says_else_which_is_the_best(report, runtimes, best, words):
    table, markdown = _under(report, runtimes, best)
    assert table.endswith(f" under {words}")
    assert markdown.endswith(f" under {words}")


def test_what_takes_several_lines_of_a_narrow_terminal_stands_behind_its_label(report, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    long = msgspec.structs.replace(
        report, host=HostSummary("node1", "haswell, no GPU, no driver, glibc 2.27, kernel 4.15")
    )
    lines = FORMATS["table"](long, Rendering(Knowledge(), terminal=True)).splitlines()
    host, finding = lines.index("  host   node1"), next(n for n, line in enumerate(lines) if "CPU001" in line)
    assert lines[host + 1 : host + 3] == ["         haswell, no GPU, no driver, glibc 2.27,", "         kernel 4.15"]
    assert lines[finding + 1].startswith(" " * 10) and "required: AVX-512F" in lines[finding + 1]


@pytest.mark.parametrize(
    ("reach", "words"),
    [("entry", ""), ("import", "imported"), ("path", "may be run"), ("unreached", "nothing leads there")],
)
def test_the_table_says_how_a_file_is_reached_and_what_leads_to_it(report, rendering, reach: str, words: str) -> None:
    evidence = Evidence("/usr/lib/x.so", reach=reach, way=("/app/run.py", "pandas"))
    (first, *others) = report.findings
    made = msgspec.structs.replace(report, findings=(msgspec.structs.replace(first, evidence=(evidence,)), *others))
    lines = FORMATS["table"](made, rendering).splitlines()
    (place,) = (number for number, line in enumerate(lines) if "/usr/lib/x.so" in line)
    assert words in lines[place]
    assert ("[" in lines[place]) == bool(words)
    assert "by /app/run.py > pandas" in lines[place + 1]


def test_json_is_the_report_itself(report, rendering):
    assert decode(FORMATS["json"](report, rendering).encode(), Report, "x") == report


def test_report_json_writes_empty_lists_so_that_scripts_can_index_them(report):
    empty = json.loads(encode(Report("1.0", "compatible", report.image, report.host, "docker", "best")))
    assert empty["findings"] == empty["checks"] == empty["cells"] == []
    assert empty["kind"] == "report"


def test_sarif_keeps_rule_level_and_fingerprint_and_marks_the_undecided_as_open(report, rendering):
    run = json.loads(FORMATS["sarif"](report, rendering))["runs"][0]
    by_rule = {result["ruleId"]: result for result in run["results"]}
    assert by_rule["CPU001"]["level"] == "error"
    assert by_rule["CPU001"]["partialFingerprints"] == {"imgcheck/v1": "0123456789abcdef"}
    assert by_rule["GPU002"]["kind"] == "open"
    assert [run["tool"]["driver"]["rules"][r["ruleIndex"]]["id"] for r in run["results"]] == ["CPU001", "GPU002"]


def test_junit_counts_failures_and_skips(report, rendering):
    suite = ET.fromstring(FORMATS["junit"](report, rendering)).find("testsuite")
    assert suite.attrib | {"name": ""} == {"name": "", "tests": "4", "failures": "1", "skipped": "2", "errors": "0"}


@pytest.mark.parametrize(
    ("fail_on", "failing"),
    [
        ("never", []),
        ("fail", ["CPU001"]),
        ("risk", ["CPU001", "KRN001"]),
        ("unknown", ["CPU001", "KRN001", "GPU002"]),
        ("degraded", ["CPU001", "KRN001", "GPU002", "MPI001"]),
    ],
)
def test_junit_and_annotations_call_a_failure_what_fails_the_gate(report, rendering, fail_on, failing):
    outcomes = {"KRN001": "risk", "MPI001": "degraded"}
    (first,) = report.findings
    others = [
        msgspec.structs.replace(first, rule=rule, severity=outcome, title=f"title of {rule}", fingerprint=rule)
        for rule, outcome in outcomes.items()
    ]
    checks = [
        msgspec.structs.replace(each, outcome=outcomes.get(each.rule, each.outcome), reason=f"reason of {each.rule}")
        for each in report.checks
    ]
    graver = msgspec.structs.replace(report, findings=(first, *others), checks=tuple(checks))
    gated = dataclasses.replace(rendering, fail_on=fail_on)
    suite = ET.fromstring(FORMATS["junit"](graver, gated)).find("testsuite")
    failures = {case.get("name"): case.find("failure").get("message") for case in suite.iterfind("testcase[failure]")}
    assert failures.keys() == set(failing)
    assert suite.get("failures") == str(len(failing))
    assert failures.get("KRN001", "title of KRN001") == "title of KRN001"
    assert failures.get("GPU002", "reason of GPU002") == "reason of GPU002"
    annotations = FORMATS["github"](graver, gated).splitlines()
    errors = [line.partition("title=")[2].split()[0] for line in annotations if line.startswith("::error ")]
    assert set(errors) == set(failing)


def test_markdown_neutralises_html_mentions_and_tables(report, rendering):
    text = FORMATS["markdown"](report, rendering)
    assert "<b>" not in text
    assert "@all" not in text
    assert "@<!-- -->all" in text


def test_annotations_stand_on_the_dockerfile_line_that_brought_the_file(report, rendering):
    origins = Origins("build/Dockerfile", {(1, "RUN make % install"): 3})
    located = Rendering(rendering.knowledge, origins)
    error, undecided = FORMATS["github"](report, located).splitlines()
    assert error.startswith("::error file=build/Dockerfile,line=3,title=CPU001 ")
    assert undecided.startswith("::warning title=GPU002 ")
    issue = json.loads(FORMATS["gitlab"](report, located))[0]
    assert issue["location"] == {"path": "build/Dockerfile", "lines": {"begin": 3}}


def test_what_no_line_brought_stands_at_the_file_in_the_image_and_is_counted(report, rendering):
    origins = Origins("Dockerfile", {(0, "RUN make % install"): 3})
    located = Rendering(rendering.knowledge, origins)
    assert FORMATS["github"](report, located).startswith("::error title=CPU001 ")
    place = json.loads(FORMATS["gitlab"](report, located))[0]["location"]
    assert place == json.loads(FORMATS["gitlab"](report, rendering))[0]["location"]
    assert unplaced(report, origins) == 1
    assert unplaced(report, Origins("Dockerfile", {(1, "RUN make % install"): 3})) == 0


def test_markdown_renders_to_html_in_which_the_image_s_text_is_text(report, rendering):
    from markdown_it import MarkdownIt

    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(FORMATS["markdown"](report, rendering))
    assert "<h3>❌ imgcheck: incompatible</h3>" in page
    assert "<blockquote>\n<p>Illegal instruction (core dumped)</p>\n</blockquote>" in page
    assert "[bold]&lt;b&gt;@<!-- -->all`|" in page
    rows = page.split("<tbody>")[1].count("<tr>")
    assert (rows, page.count("<td>")) == (2, 8)


def test_gitlab_s_issues_have_the_fields_that_its_documentation_demands(report, rendering):
    issues = json.loads(FORMATS["gitlab"](report, rendering))
    assert issues
    for issue in issues:
        assert issue.keys() == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert not issue["location"]["path"].startswith("./")
        assert issue["location"]["lines"]["begin"] >= 1
