"""Findings under a policy: severities changed, waivers and the baseline applied, and what of these did nothing."""

import datetime
from collections.abc import Sequence
from itertools import islice

import msgspec

from imgcheck.check.context import severity_for
from imgcheck.documents.host import HostProfile
from imgcheck.documents.report import Finding
from imgcheck.policy.baseline import Baseline
from imgcheck.policy.document import Policy, Waiver

_PLACES = 2
"""Places that are named where a waiver is for another one."""


class Reviewer:
    """Reviews every finding of a check (check.run.Review), then tells in `notes` what the policy holds too much.

    `hosts` are those that the check asks about: what a baseline has for others is left alone, and so is a waiver that
    may be for others, where these are not `every_host` of the policy.
    """

    def __init__(
        self,
        policy: Policy,
        baseline: Baseline | None,
        hosts: Sequence[str],
        today: datetime.date,
        every_host: bool = True,
    ) -> None:
        self._policy = policy
        self._baseline = baseline
        self._hosts = frozenset(hosts)
        self._today = today
        self._every_host = every_host
        self._used: set[Waiver] = set()
        self._partly: dict[Waiver, str] = {}
        self._places: dict[str, dict[str, None]] = {}
        self._met: set[tuple[str, str, str]] = set()

    def __call__(self, finding: Finding, host: HostProfile, runtime: str) -> Finding:
        """`finding` with the policy's severity, and with why it does not count where that is so."""
        wanted = self._policy.severity.get(finding.rule)
        if wanted:
            # A rule made graver still says little of a file that nothing reaches.
            finding = msgspec.structs.replace(finding, severity=severity_for(wanted, finding.evidence))
        self._met.add((host.name, runtime, finding.fingerprint))
        places = (evidence.path or "the image's configuration" for evidence in finding.evidence)
        self._places.setdefault(finding.rule, {}).update(dict.fromkeys(places))
        waived = self._waived(finding) or self._accepted(finding, host.name, runtime)
        return msgspec.structs.replace(finding, waived=waived) if waived else finding

    def notes(self) -> tuple[str, ...]:
        """Waivers that expired or match nothing, and entries of the baseline that are found no more."""
        notes = [note for waiver in self._policy.waiver for note in self._remarks(waiver)]
        gone = self._gone()
        if gone:
            entries = "1 entry of the baseline is" if gone == 1 else f"{gone} entries of the baseline are"
            notes.append(f"{entries} found no more; write it again to keep what is gone from coming back")
        return tuple(notes)

    def _waived(self, finding: Finding) -> str:
        for waiver in self._policy.waiver:
            if waiver.rule != finding.rule:
                continue
            places = [evidence.path for evidence in finding.evidence]
            matching = [place for place in places if waiver.matches(place)]
            if waiver.path and len(matching) < max(1, len(places)):
                if matching:
                    other = next(place for place in places if not waiver.matches(place))
                    self._partly[waiver] = f"{len(matching)} of {len(places)} places of {finding.title!r}; not {other}"
                continue
            self._used.add(waiver)
            if self._today <= waiver.expires:
                return f"{waiver.reason} (until {waiver.expires})"
        return ""

    def _accepted(self, finding: Finding, host: str, runtime: str) -> str:
        if self._baseline and finding.severity != "info" and self._baseline.covers(host, runtime, finding):
            return "in the baseline"
        return ""

    def _remarks(self, waiver: Waiver) -> list[str]:
        if self._today > waiver.expires:
            matters = ", and it matches nothing: remove it" if waiver not in self._used and self._every_host else ""
            return [f"{waiver.label} expired on {waiver.expires}{matters} (its reason was: {waiver.reason})"]
        if waiver in self._used:
            return []
        if waiver in self._partly:
            return [f"{waiver.label} does not apply: it matches {self._partly[waiver]}"]
        if waiver.path and waiver.path[0] not in "/*?":
            return [f"{waiver.label} matches nothing: places in the image begin with a slash, as in /{waiver.path}"]
        if not self._every_host:
            return []
        others = (place for place in self._places.get(waiver.rule, ()) if not waiver.matches(place))
        places = " and ".join(islice(others, _PLACES))
        return [f"{waiver.label} matches nothing: {f'{waiver.rule} is found at {places}' if places else 'remove it'}"]

    def _gone(self) -> int:
        entries = self._baseline.findings if self._baseline else ()
        of_hosts = (each for each in entries if each.host in self._hosts)
        return sum(not any(each.is_of(*met) for met in self._met) for each in of_hosts)
