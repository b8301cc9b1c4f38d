"""Runs a scenario through the command line: image, host and runtime to the report, held against what happened."""

import contextlib
import io
import tomllib
from functools import cache
from pathlib import Path

import msgspec

from imgcheck.cli import main
from imgcheck.documents import Report, decode, encode
from imgcheck.host.describe import describe_host
from imgcheck.knowledge import Knowledge
from tests.seeds.recipes import build, recipes

_HERE = Path(__file__).parent


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finding that has to be there."""

    rule: str
    severity: str
    error: str
    """Words of the predicted error."""


class Counter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another host (or runtime) for the same image, on which the outcome differs."""

    host: str
    verdict: str
    runtime: str = ""
    finds: tuple[Expected, ...] = ()
    free_of: tuple[str, ...] = ()


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of scenarios.toml."""

    id: str
    title: str
    image: str
    host: str
    runtime: str
    happened: str
    verdict: str
    counter: Counter
    finds: tuple[Expected, ...] = ()
    free_of: tuple[str, ...] = ()

    def against_counter(self) -> "Scenario":
        """The same scenario with the counter's host, runtime and expectations."""
        other = self.counter
        return msgspec.structs.replace(
            self, host=other.host, runtime=other.runtime or self.runtime, verdict=other.verdict,
            finds=other.finds, free_of=other.free_of,
        )  # fmt: skip


class _Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    cpu: str
    gpus: tuple[str, ...]
    driver: str
    glibc: str
    kernel: str


@cache
def scenarios() -> tuple[Scenario, ...]:
    return msgspec.convert(tomllib.loads((_HERE / "scenarios.toml").read_text())["scenario"], tuple[Scenario, ...])


@cache
def _hosts() -> dict[str, _Host]:
    table = tomllib.loads((_HERE / "hosts.toml").read_text())["host"]
    return {host.id: host for host in msgspec.convert(table, list[_Host])}


class Replay:
    """Replays scenarios in one directory; each image is built and profiled once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def report(self, scenario: Scenario) -> Report:
        """What `imgcheck image` says of the scenario."""
        output = _imgcheck(
            "image", self._profile(scenario.image), "--host-probe", self._host(scenario.host),
            "--runtime", scenario.runtime, "-o", "json", "--fail-on", "never", "--allow-unknown",
        )  # fmt: skip
        return decode(output.encode(), Report, scenario.id)

    def layout(self, image: str) -> Path:
        """The OCI layout of an image."""
        directory = self._directory / "images" / image.replace("/", "-").replace(":", "-")
        return directory if directory.exists() else build(recipes()[image]).write(directory)

    def _profile(self, image: str) -> str:
        layout = self.layout(image)
        profile = Path(f"{layout}.json")
        if not profile.exists():
            platform = f"linux/{recipes()[image].architecture}"
            _imgcheck("profile", f"oci:{layout}", "--platform", platform, "-o", str(profile))
        return str(profile)

    def _host(self, name: str) -> str:
        path = self._directory / f"host-{name}.json"
        if not path.exists():
            host = _hosts()[name]
            described = describe_host(
                Knowledge(), cpu=host.cpu, gpus=host.gpus, driver=host.driver, glibc=host.glibc, kernel=host.kernel,
                name=host.id,
            )  # fmt: skip
            path.write_bytes(encode(described))
        return str(path)


def _imgcheck(*arguments: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = main(arguments)
    if status:
        raise AssertionError(f"imgcheck {' '.join(arguments)}: exit status {status}")
    return output.getvalue()


def differences(scenario: Scenario, report: Report) -> list[str]:
    """How the report falls short of what happened; empty where it foresees it."""
    wrong = []
    if report.verdict != scenario.verdict:
        open_questions = [
            f"{c.rule} {c.outcome}: {c.reason}" for c in report.checks if c.outcome in ("unknown", "risk")
        ]
        wrong.append(f"verdict {report.verdict}, not {scenario.verdict} {open_questions}")
    for expected in scenario.finds:
        found = [finding for finding in report.findings if finding.rule == expected.rule]
        if not any(f.severity == expected.severity and expected.error in f.predicted_error for f in found):
            seen = [f"{finding.severity}: {finding.predicted_error}" for finding in found]
            wrong.append(f"{expected.rule} {expected.severity} with {expected.error!r} expected, {seen} found")
    wrong += [f"{f.rule} found: {f.title} ({f.severity})" for f in report.findings if f.rule in scenario.free_of]
    return wrong
