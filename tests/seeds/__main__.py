"""`make seeds`: the recorded failures, what happened then, and what imgcheck says of each."""

import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from imgcheck.documents import Report
from tests.seeds.replay import Replay, Scenario, differences, scenarios


def main() -> int:
    """Print the table; the exit status is 1 where a prediction is wrong."""
    table = Table(show_lines=True)
    for column in ("scenario", "what happened then", "what imgcheck says", "on the counter-host"):
        table.add_column(column, overflow="fold")
    failures = 0
    with tempfile.TemporaryDirectory() as directory:
        replay = Replay(Path(directory))
        for scenario in scenarios():
            cells = []
            for case in (scenario, scenario.against_counter()):
                report = replay.report(case)
                wrong = differences(case, report)
                failures += bool(wrong)
                cells.append("\n".join([*_says(case, report), *(f"WRONG: {line}" for line in wrong)]))
            table.add_row(f"{scenario.id}\n{scenario.title}", scenario.happened, *cells)
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200).print(table)
    print(f"{len(scenarios())} scenarios, each with a counter-host; {failures} predictions wrong")
    return 1 if failures else 0


def _says(case: Scenario, report: Report) -> list[str]:
    wanted = {expected.rule for expected in case.finds}
    shown = [f for f in report.findings if f.rule in wanted or (f.severity != "info" and not wanted)]
    return [
        f"{case.host}, {case.runtime}: {report.verdict}",
        *(f"{finding.rule}: {finding.predicted_error}" for finding in shown[:3]),
    ]


if __name__ == "__main__":
    sys.exit(main())
