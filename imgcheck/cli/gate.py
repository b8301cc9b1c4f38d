"""What an image is held to: hosts of the command line or of a policy, waivers, a baseline and the level that fails."""

import argparse
import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from imgcheck.cli import FOUND, OK, UNDECIDED, note
from imgcheck.cli.files import refuse_unwritable, write
from imgcheck.cli.host_files import load_hosts
from imgcheck.cli.options import path
from imgcheck.documents import HostProfile, ImageProfile, Report
from imgcheck.documents.codec import as_text
from imgcheck.documents.report import FailOn, at_or_above
from imgcheck.errors import UsageError
from imgcheck.knowledge import Knowledge

if TYPE_CHECKING:
    from imgcheck.check.run import Request
    from imgcheck.policy.baseline import Baseline
    from imgcheck.policy.document import Policy


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("policy (imgcheck.toml)")
    group.add_argument("--policy", metavar="FILE", type=path, help="this one, not the nearest imgcheck.toml upwards")
    group.add_argument("--no-policy", action="store_true", help="none")
    group.add_argument("--baseline", metavar="FILE", type=path, help="what it holds may stay; only worse things count")
    group.add_argument("--write-baseline", metavar="FILE", type=path, help="keep what is found now, and let it stay")


def exit_status(report: Report, fail_on: FailOn, allow_unknown: bool) -> int:
    """What a script learns from the verdict (the contract of DESIGN: 0, 1 or 3)."""
    if at_or_above(report.verdict, fail_on):
        return FOUND
    return UNDECIDED if report.verdict == "unknown" and not allow_unknown else OK


_Images = Sequence[tuple[ImageProfile, list[HostProfile]]]


@dataclass(frozen=True)
class Gate:
    """All that decides the exit status besides the image."""

    hosts: tuple[HostProfile, ...]
    """Equal ones are one kind; empty where neither option nor policy names any."""
    every_host: bool
    """Whether they stand for all of the policy: else one of its waivers may be for another host."""
    required_runtimes: dict[str, tuple[str, ...]]
    fail_on: FailOn
    allow_unknown: bool
    policy: "Policy"
    """An empty one where there is none."""
    policy_file: Path | None
    baseline_file: Path | None
    new_baseline_file: Path | None

    @classmethod
    def of(cls, parsed: argparse.Namespace, knowledge: Knowledge) -> "Gate":
        """What options and policy ask for; options win. Raises ImgcheckError."""
        from imgcheck.host.kinds import kinds, named_apart
        from imgcheck.policy.document import Policy, read_policy
        from imgcheck.policy.hosts import required_hosts

        if parsed.policy and parsed.no_policy:
            raise UsageError("--policy and --no-policy exclude each other")
        file = _policy_file(parsed)
        policy = read_policy(file, knowledge) if file else Policy()
        hosts = named_apart(kinds(load_hosts(parsed.host_probe, knowledge)))
        runtimes: dict[str, tuple[str, ...]] = {}
        if file and not hosts:
            required = required_hosts(policy, file, knowledge)
            hosts = [each.host for each in required]
            if not parsed.runtime:
                runtimes = {each.host.name: each.runtimes for each in required if each.runtimes}
        if not hosts and parsed.fail_on not in (None, "never"):
            raise UsageError(
                f"--fail-on {parsed.fail_on}: there is no host to hold the image against",
                "add --host-probe for this machine, --host-probe HOST.json, or a [[host]] in imgcheck.toml",
            )
        if not hosts and (parsed.baseline or parsed.write_baseline):
            raise UsageError("a baseline is of hosts", "name them with --host-probe, or as [[host]] in imgcheck.toml")
        if not hosts and file and (parsed.policy or policy != Policy()):
            raise UsageError(
                f"{file}: it has no [[host]], so there is nothing to hold the image against",
                "add one, or --host-probe for this machine; --no-policy instead shows what the image needs",
            )
        if parsed.write_baseline:
            refuse_unwritable(f"--write-baseline {parsed.write_baseline}", parsed.write_baseline)
        beside = file.parent / policy.baseline if file and policy.baseline else None
        return cls(
            hosts=tuple(hosts),
            every_host=not (parsed.host_probe and policy.host),
            required_runtimes=runtimes,
            fail_on=parsed.fail_on or policy.fail_on,
            allow_unknown=parsed.allow_unknown or policy.allow_unknown,
            policy=policy,
            policy_file=file,
            baseline_file=parsed.baseline or beside,
            new_baseline_file=parsed.write_baseline,
        )

    def check(self, images: "_Images", request: "Request", knowledge: Knowledge) -> Report:
        """The report on every image for its hosts, under the policy; writes the new baseline where one was asked for.

        `images` holds the same image for each platform. The report is then the one that a run with the new baseline
        would give.
        """
        from imgcheck.policy.baseline import baseline_of, encode_baseline, joined, read_baseline

        baseline: Baseline | None
        if self.new_baseline_file:
            stated = {host.name for host in self.hosts} if request.runtimes else self.required_runtimes.keys()
            first = baseline_of(self._reviewed(images, request, knowledge, None), stated)
            # Where the image is for another architecture, no other rule speaks before that is accepted.
            baseline = joined(first, baseline_of(self._reviewed(images, request, knowledge, first), stated))
            write(self.new_baseline_file, encode_baseline(baseline))
            kept = len(baseline.findings)
            note(f"{self.new_baseline_file} written: {kept} finding{'' if kept == 1 else 's'} may stay from now on")
        else:
            baseline = read_baseline(self.baseline_file) if self.baseline_file else None
        return self._reviewed(images, request, knowledge, baseline)

    def asked(self, request: "Request") -> "Request":
        """`request` with the runtimes that the policy requires."""
        return msgspec.structs.replace(request, required_runtimes=self.required_runtimes)

    def _reviewed(
        self, images: "_Images", request: "Request", knowledge: Knowledge, baseline: "Baseline | None"
    ) -> Report:
        from imgcheck.check.run import check, combine
        from imgcheck.policy.review import Reviewer

        names = [host.name for host in self.hosts]
        today = datetime.datetime.now(datetime.UTC).date()
        reviewer = Reviewer(self.policy, baseline, names, today, self.every_host)
        request = msgspec.structs.replace(self.asked(request), review=reviewer)
        report = combine([check(image, hosts, request, knowledge) for image, hosts in images])
        tool = report.tool | ({"policy": as_text(str(self.policy_file))} if self.policy_file else {})
        return msgspec.structs.replace(report, notes=reviewer.notes(), tool=tool)


def _policy_file(parsed: argparse.Namespace) -> Path | None:
    from imgcheck.policy.document import find_policy

    if parsed.no_policy:
        return None
    return parsed.policy or find_policy(Path.cwd())
