"""Asking a driver library in a process of its own: right answers, and none from a library that hangs or dies."""

import pytest

import imgcheck.host.ask_driver as ask_driver
from imgcheck.host.files import Root
from tests.tools import compile_c


def _library(body: str) -> str:
    source = f"#include <unistd.h>\n#include <stdlib.h>\nint cuDriverGetVersion(int *v) {{ {body} }}"
    return str(compile_c(source, "-shared", "-fPIC", out="libcuda.so.1"))


def test_version_is_what_the_library_says() -> None:
    assert ask_driver.ask(Root(), _library("*v = 9020; return 0;")).cuda == 9020


def test_stub_library_tells_nothing() -> None:
    assert ask_driver.ask(Root(), _library("*v = 9020; return 34;")).cuda == 0


def test_library_that_kills_its_process_does_not_kill_ours() -> None:
    assert ask_driver.ask(Root(), _library("abort();")) == ask_driver.Answer()


def test_library_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_driver, "_TIME_LIMIT", 0.5)
    assert ask_driver.ask(Root(), _library("sleep(60); return 0;")) == ask_driver.Answer()


def test_captured_host_is_never_asked(tmp_path) -> None:
    assert ask_driver.ask(Root(tmp_path), _library("*v = 9020; return 0;")) == ask_driver.Answer()
