"""JUnit XML: a suite for the deciding cell, a test case per rule."""

import xml.etree.ElementTree as ET

from imgcheck.documents.report import CheckResult, Finding, Report
from imgcheck.report.location import message
from imgcheck.report.text import safe


def junit(report: Report) -> str:
    """Failures are findings that fail; risks and worse-than-best runs stand in system-out; undecided is skipped."""
    suite = ET.Element("testsuite", name=f"imgcheck {safe(report.image.reference)}")
    for check in report.checks:
        suite.append(_case(check, [finding for finding in report.findings if finding.rule == check.rule], report))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suite.set("errors", "0")
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(check: CheckResult, findings: list[Finding], report: Report) -> ET.Element:
    classname = f"{safe(report.host.name)}.{report.runtime}"
    case = ET.Element("testcase", classname=classname, name=check.rule, time="0")
    if check.outcome == "fail":
        failing = [finding for finding in findings if finding.severity == "fail"]
        failure = ET.SubElement(case, "failure", message=safe(failing[0].title if failing else check.reason))
        failure.text = "\n\n".join(message(finding) for finding in failing)
    elif check.outcome in ("unknown", "not-applicable"):
        ET.SubElement(case, "skipped", message=safe(check.reason))
    elif findings:
        ET.SubElement(case, "system-out").text = "\n\n".join(message(finding) for finding in findings)
    return case
