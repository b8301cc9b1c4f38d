"""Several required hosts: no format loses a finding of one that does not decide, and what is waived stays visible."""

import json
import xml.etree.ElementTree as ET

import msgspec
import pytest

from imgcheck.documents.report import CheckResult, HostSummary, Report, Requirement
from imgcheck.knowledge import Knowledge
from imgcheck.report import across
from imgcheck.report.formats import FORMATS, Rendering

RENDERING = Rendering(Knowledge())


@pytest.fixture
def several(report: Report) -> Report:
    """Two hosts: node1 decides; login has the same finding as a risk, one of its own and an open question."""
    (first,) = report.findings
    same = msgspec.structs.replace(first, severity="risk")
    own = msgspec.structs.replace(
        first, rule="KRN001", severity="risk", title="Kernel too old", fingerprint="fedcba9876543210", subject="kernel"
    )
    checks = (CheckResult("KRN001", "risk", "old"), CheckResult("GPU003", "unknown", "no GPU is known"))
    login = Requirement(HostSummary("login", "old", 412), "podman", "at-risk", (same, own), checks)
    node = Requirement(report.host, report.runtime, report.verdict, report.findings, report.checks)
    return msgspec.structs.replace(report, requirements=(node, login), notes=("waiver of X expired",))


def waive(report: Report) -> Report:
    (first,) = report.findings
    checks = (CheckResult("CPU001", "ok", "AVX-512F is missing (1 of 1 findings waived)"),)
    return msgspec.structs.replace(
        report, findings=(msgspec.structs.replace(first, waived="ops (until 2030)"),), checks=checks
    )


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_shows_the_finding_of_the_host_that_does_not_decide(name, several):
    text = FORMATS[name](several, RENDERING)
    assert "KRN001" in text
    assert "Kernel too old" in text
    assert "login" in text


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "gitlab"])
def test_every_format_with_a_place_for_it_tells_the_remarks_on_the_policy(name, several):
    assert "waiver of X expired" in FORMATS[name](several, RENDERING)


def test_a_finding_of_two_hosts_is_one_with_its_worst_severity_and_both_names(several):
    merged = {each.finding.rule: each for each in across.findings(several)}
    assert merged["CPU001"].finding.severity == "fail"
    assert merged["CPU001"].hosts == ("node1", "login (412 nodes)")
    assert merged["CPU001"].on == "every one of the 413 hosts"
    assert merged["KRN001"].on == "login (412 nodes)"


def _accepted_on_login(several: Report) -> Report:
    node, login = several.requirements
    first, *others = login.findings
    accepted = msgspec.structs.replace(first, waived="in the baseline")
    checks = (*login.checks, CheckResult("CPU001", "ok", "AVX-512F is missing (1 of 1 findings waived)"))
    login = msgspec.structs.replace(login, findings=(accepted, *others), checks=checks)
    return msgspec.structs.replace(several, requirements=(node, login))


def test_a_finding_accepted_on_one_host_counts_on_the_other_alone(several):
    report = _accepted_on_login(several)
    same = [each for each in across.findings(report) if each.finding.rule == "CPU001"]
    assert [(each.on, each.finding.waived) for each in same] == [
        ("node1", ""),
        ("login (412 nodes)", "in the baseline"),
    ]
    issues = json.loads(FORMATS["gitlab"](report, RENDERING))
    assert len({issue["fingerprint"] for issue in issues}) == len(issues) == 5


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_shows_what_is_accepted_on_one_host_alone(name, several):
    assert "in the baseline" in FORMATS[name](_accepted_on_login(several), RENDERING)


def test_fingerprints_are_unique_in_the_files_that_demand_it(several):
    issues = json.loads(FORMATS["gitlab"](several, RENDERING))
    assert len({issue["fingerprint"] for issue in issues}) == len(issues) == 4
    results = json.loads(FORMATS["sarif"](several, RENDERING))["runs"][0]["results"]
    prints = [r["partialFingerprints"]["imgcheck/v1"] for r in results if "partialFingerprints" in r]
    assert len(set(prints)) == len(prints) == 2


def test_junit_has_a_suite_for_each_host(several):
    suites = ET.fromstring(FORMATS["junit"](several, RENDERING)).findall("testsuite")
    assert [suite.get("failures") for suite in suites] == ["1", "0"]
    assert suites[1].get("name").endswith("on login (412 nodes)")


def test_a_host_required_under_two_runtimes_is_named_with_each(several):
    twice = msgspec.structs.replace(several.requirements[0], runtime="apptainer")
    both = msgspec.structs.replace(several, requirements=(several.requirements[0], twice))
    assert [across.label(each, both) for each in both.requirements] == ["node1 under docker", "node1 under apptainer"]


def test_what_fails_is_counted_in_machines_and_kinds(several):
    assert across.failing(several) == "on 1 of 413 hosts (1 of 2 kinds)"
    assert across.asked(several) == "413 hosts of 2 kinds"
    single = msgspec.structs.replace(several.requirements[1], host=HostSummary("login"), verdict="compatible")
    assert (
        across.failing(msgspec.structs.replace(several, requirements=(several.requirements[0], single)))
        == "on 1 of 2 hosts"
    )
    assert across.failing(msgspec.structs.replace(several, requirements=(single, single))) == ""


def test_what_fails_on_a_host_under_several_required_runtimes_is_counted_in_cases(several):
    node = several.requirements[0]
    other = msgspec.structs.replace(node, runtime="apptainer", verdict="compatible", findings=node.findings)
    both = msgspec.structs.replace(several, requirements=(node, other))
    assert across.failing(both) == "in 1 of 2 cases (1 host under 2 runtimes)"
    (shared,) = across.findings(both)
    assert shared.on == "every host, under each runtime that is required there"
    assert "Fails in 1 of 2 cases" in FORMATS["table"](both, RENDERING)


def test_no_number_of_runtimes_is_told_where_hosts_differ_in_theirs(several):
    node, login = several.requirements
    other = msgspec.structs.replace(node, runtime="udocker")
    mixed = msgspec.structs.replace(several, requirements=(node, other, login))
    assert across.failing(mixed) == "in 2 of 3 cases (413 hosts of 2 kinds, some under several runtimes)"


@pytest.mark.parametrize("name", FORMATS)
def test_a_waived_finding_stays_visible_with_its_reason(name, report):
    text = FORMATS[name](waive(report), RENDERING)
    assert "CPU001" in text
    assert "ops (until 2030)" in text.replace("\\", "")


def test_a_waived_finding_counts_nowhere(report):
    waived = waive(report)
    assert "::error" not in FORMATS["github"](waived, RENDERING)
    assert json.loads(FORMATS["gitlab"](waived, RENDERING))[0]["severity"] == "info"
    (result,) = json.loads(FORMATS["sarif"](waived, RENDERING))["runs"][0]["results"]
    assert result["suppressions"] == [{"kind": "external", "status": "accepted", "justification": "ops (until 2030)"}]
    assert ET.fromstring(FORMATS["junit"](waived, RENDERING)).find(".//failure") is None
    table = FORMATS["table"](waived, RENDERING)
    assert "It will fail" not in table
    assert "Checked and fine" not in table


def test_what_is_waived_or_open_stands_at_the_head_of_a_verdict_that_it_qualifies(report):
    assert "would fail, below" not in FORMATS["table"](report, RENDERING)
    settled = msgspec.structs.replace(waive(report), verdict="compatible")
    head, _, _ = FORMATS["table"](settled, RENDERING).partition("\n\n")
    assert "waived 1 that would fail, below" in head
    head, _, _ = FORMATS["table"](msgspec.structs.replace(report, verdict="unknown"), RENDERING).partition("\n\n")
    assert "open   the driver's version is not known" in head


def test_a_finding_of_the_configuration_has_a_place_that_code_scanning_accepts(report):
    (first,) = report.findings
    evidence = msgspec.structs.replace(first.evidence[0], path="")
    bare = msgspec.structs.replace(report, findings=(msgspec.structs.replace(first, evidence=(evidence,)),))
    result = json.loads(FORMATS["sarif"](bare, RENDERING))["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "image"


def test_verbose_hides_no_finding(report):
    (first,) = report.findings
    many = tuple(msgspec.structs.replace(first, title=f"title {n}", fingerprint=str(n)) for n in range(20))
    lengthy = msgspec.structs.replace(report, findings=many)
    assert "title 19" not in FORMATS["table"](lengthy, RENDERING)
    assert "--verbose lists all" in FORMATS["table"](lengthy, RENDERING)
    assert "title 19" in FORMATS["table"](lengthy, Rendering(RENDERING.knowledge, verbose=True))


def test_a_comment_with_hundreds_of_findings_fits_where_comments_go(report):
    (first,) = report.findings
    many = tuple(msgspec.structs.replace(first, title=f"title {n}", fingerprint=str(n)) for n in range(500))
    text = FORMATS["markdown"](msgspec.structs.replace(report, findings=many), RENDERING)
    assert len(text) < 65536
    assert "- and 479 more" in text
    assert text.count("Rebuild with") == 1
