"""Waivers, severities and baselines: what they change, and what they must not."""

import datetime

import msgspec

from imgcheck.check import run
from imgcheck.documents.report import CheckResult, HostSummary, ImageSummary, Report
from imgcheck.policy.baseline import Accepted, Baseline, baseline_of
from imgcheck.policy.document import Policy, Waiver
from imgcheck.policy.review import Reviewer
from tests.policy.findings import finding, host

TODAY = datetime.date(2026, 6, 1)


def waiver(rule: str = "CPU001", path: str = "/opt/**", expires: datetime.date = TODAY) -> Waiver:
    return Waiver(rule, "accepted by ops", expires, path)


def reviewer(*waivers: Waiver, baseline: Baseline | None = None, every_host: bool = True, **severity: str) -> Reviewer:
    return Reviewer(Policy(waiver=waivers, severity=severity), baseline, ["node1"], TODAY, every_host)


def test_a_waiver_marks_its_finding_on_its_last_day_and_says_nothing():
    review = reviewer(waiver())
    reviewed = review(finding(), host(), "docker")
    assert reviewed.waived == "accepted by ops (until 2026-06-01)"
    assert reviewed.severity == "fail"
    assert review.notes() == ()


def test_an_expired_waiver_waives_nothing_and_is_reported():
    review = reviewer(waiver(expires=TODAY - datetime.timedelta(1)))
    assert not review(finding(), host(), "docker").waived
    assert "expired on 2026-05-31 (its reason was: accepted by ops)" in review.notes()[0]


def test_a_waiver_of_another_rule_or_place_waives_nothing_and_is_reported_as_unused():
    review = reviewer(waiver("GPU001"), waiver(path="/srv/**"))
    assert not review(finding(), host(), "docker").waived
    assert [note.rpartition(" matches nothing")[0] for note in review.notes()] == [
        "waiver of GPU001 at /opt/**",
        "waiver of CPU001 at /srv/**",
    ]


def test_a_waiver_for_another_place_is_told_where_its_rule_is_found():
    review = reviewer(waiver("GPU001"), waiver(path="/srv/**"), waiver(path="/**"), waiver(path="/opt/*"))
    for path in ("/opt/a", "/opt/a", "/opt/b", "/opt/c"):
        review(finding(paths=(path,)), host(), "docker")
    assert review.notes() == (
        "waiver of GPU001 at /opt/** matches nothing: remove it",
        "waiver of CPU001 at /srv/** matches nothing: CPU001 is found at /opt/a and /opt/b",
        "waiver of CPU001 at /opt/* matches nothing: remove it",
    )


def test_a_waiver_that_may_be_for_another_host_is_not_called_unused():
    expired = waiver("GPU002", expires=TODAY - datetime.timedelta(1))
    review = reviewer(waiver("GPU001"), waiver(path="/srv/**"), expired, every_host=False)
    review(finding(), host(), "docker")
    (note,) = review.notes()
    assert note.startswith("waiver of GPU002 at /opt/** expired on 2026-05-31 (its reason")


def test_a_waiver_whose_path_lacks_the_slash_is_told_so():
    review = reviewer(waiver(path="opt/**"))
    assert not review(finding(), host(), "docker").waived
    assert "begin with a slash, as in /opt/**" in review.notes()[0]


def test_a_waiver_that_matches_some_places_alone_hides_none_of_them():
    review = reviewer(waiver())
    assert not review(finding(paths=("/opt/a", "/usr/bin/b")), host(), "docker").waived
    assert "1 of 2 places" in review.notes()[0]
    assert "not /usr/bin/b" in review.notes()[0]


def test_a_waiver_with_a_path_does_not_cover_a_finding_without_a_place():
    assert not reviewer(waiver())(finding(paths=()), host(), "docker").waived
    assert reviewer(waiver(path=""))(finding(paths=()), host(), "docker").waived


def test_severity_changes_its_rule_alone():
    review = reviewer(CPU001="degraded")
    assert review(finding(), host(), "docker").severity == "degraded"
    assert review(finding("CPU002", "risk"), host(), "docker").severity == "risk"


def test_a_rule_made_graver_still_says_little_of_what_nothing_reaches():
    review = reviewer(CPU004="fail")
    assert review(finding("CPU004", "degraded"), host(), "docker").severity == "fail"
    assert review(finding("CPU004", "info", reach="unreached"), host(), "docker").severity == "info"
    assert review(finding("CPU004", "degraded", reach="path"), host(), "docker").severity == "risk"


def test_a_baseline_covers_the_same_or_less_on_its_host_alone():
    baseline = Baseline("1.0", "app", (Accepted("node1", "", finding().fingerprint, "risk", "CPU001", ""),))
    review = reviewer(baseline=baseline)
    assert review(finding(severity="risk"), host(), "docker").waived == "in the baseline"
    assert review(finding(severity="degraded"), host(), "docker").waived
    assert not review(finding(severity="fail"), host(), "docker").waived
    assert not review(finding(severity="risk"), host("node2"), "docker").waived
    assert not review(finding(severity="risk", paths=("/opt/other",)), host(), "docker").waived


def test_what_a_baseline_has_too_much_is_reported_for_the_hosts_that_were_asked_about():
    entries = tuple(Accepted(name, "", "gone", "fail", "CPU001", "") for name in ("node1", "elsewhere"))
    review = reviewer(baseline=Baseline("1.0", "app", entries))
    review(finding(), host(), "docker")
    assert review.notes()[0].startswith("1 entry of the baseline is found no more; write it again")
    more = (*entries, Accepted("node1", "", "gone too", "fail", "CPU001", ""))
    review = reviewer(baseline=Baseline("1.0", "app", more))
    assert review.notes()[0].startswith("2 entries of the baseline are found no more; write it")


def test_a_new_baseline_holds_what_counts():
    waived = reviewer(waiver())(finding(), host(), "docker")
    found = (waived, finding("CPU002", "risk"), finding("LIB001", "info"))
    report = Report("1.0", "at-risk", ImageSummary("app", ""), HostSummary("node1"), "docker", "best", found)
    (accepted,) = baseline_of(report, stated=()).findings
    assert (accepted.host, accepted.runtime, accepted.rule, accepted.severity) == ("node1", "", "CPU002", "risk")
    (accepted,) = baseline_of(report, stated={"node1"}).findings
    assert accepted.runtime == "docker"


def test_what_a_baseline_has_of_a_runtime_that_was_asked_for_says_nothing_of_another():
    entries = (
        Accepted("node1", "docker", finding().fingerprint, "risk", "CPU001", ""),
        Accepted("node1", "enroot", finding().fingerprint, "fail", "CPU001", ""),
    )
    review = reviewer(baseline=Baseline("1.0", "app", entries))
    assert review(finding(severity="risk"), host(), "docker").waived
    assert not review(finding(), host(), "docker").waived
    assert not review(finding(severity="risk"), host(), "apptainer").waived
    assert review.notes()[0].startswith("1 entry of the baseline is found no more")
    assert review(finding(), host(), "enroot").waived
    assert not review.notes()


def test_waiving_a_finding_does_not_hide_the_question_that_is_open_besides():
    before = finding()
    after = msgspec.structs.replace(before, waived="accepted")
    answered = CheckResult(before.rule, "fail", before.title, open="one file could not be read")
    reviewed = run.review_result(answered, [before], [after])
    assert (reviewed.outcome, reviewed.reason) == ("unknown", "one file could not be read")
    settled = run.review_result(CheckResult(before.rule, "fail", before.title), [before], [after])
    assert settled.outcome == "ok"


def test_a_rule_made_a_failure_fails_though_its_question_is_open():
    before = finding(severity="info")
    after = msgspec.structs.replace(before, severity="fail")
    reviewed = run.review_result(CheckResult(before.rule, "unknown", "one file could not be read"), [before], [after])
    assert (reviewed.outcome, reviewed.open) == ("fail", "one file could not be read")


def test_what_is_made_information_is_told_once_and_not_called_fine():
    before = finding()
    after = msgspec.structs.replace(before, severity="info")
    reviewed = run.review_result(CheckResult(before.rule, "fail", before.title), [before], [after])
    assert (reviewed.outcome, reviewed.reason) == ("ok", f"not decisive: {before.title}")


def test_waiving_one_of_several_remarks_tells_them_once():
    remarks = [finding(severity="info"), finding(severity="info", paths=("/opt/other",))]
    after = [msgspec.structs.replace(remarks[0], waived="accepted"), remarks[1]]
    fine = f"all is there (not decisive: {remarks[0].title})"
    reviewed = run.review_result(CheckResult(remarks[0].rule, "ok", fine), remarks, after)
    assert (reviewed.outcome, reviewed.reason) == ("ok", f"{fine} (1 of 2 findings waived)")


def test_a_rule_made_less_than_a_risk_leaves_its_question_open():
    before = finding()
    after = msgspec.structs.replace(before, severity="degraded")
    answered = CheckResult(before.rule, "fail", before.title, open="one file could not be read")
    assert run.review_result(answered, [before], [after]).outcome == "unknown"
