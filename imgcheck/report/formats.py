"""The formats of a Report, by the name that `-o` takes; the first is what a person gets."""

from collections.abc import Callable

from imgcheck.documents import ImageProfile, Report, encode


def _table(report: Report, _image: ImageProfile, terminal: bool) -> str:
    from imgcheck.report.terminal import terminal_report

    return terminal_report(report, terminal)


def _json(report: Report, _image: ImageProfile, _terminal: bool) -> str:
    return encode(report).decode()


FORMATS: dict[str, Callable[[Report, ImageProfile, bool], str]] = {"table": _table, "json": _json}
