"""Host documents that people write by hand, or that another version wrote: any text may stand in a field."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgcheck.check.run import Request, check
from imgcheck.documents import HostProfile, decode, encode
from imgcheck.documents.facts import ForwardCompat
from imgcheck.errors import ImgcheckError
from imgcheck.host.describe import describe_host
from imgcheck.host.probe import probe_host
from imgcheck.report.terminal import terminal_report
from tests.check.contexts import KNOWLEDGE, code, context, use
from tests.gpu_files import gpu_file, image, libcuda, module
from tests.tools import CHECKOUT

_IMAGES = (
    image({
        "/usr/lib/libcuda.so.390.30": libcuda("9.1"),
        "/usr/local/cuda/compat/libcuda.so.1": libcuda("12.2", forward_compat=ForwardCompat("12.2")),
        "/app": gpu_file(module(["37"], ["compute_70@6.0"]), cudart="9.0"),
    }),
    context({"/app": code(use("avx2"), use("avx512f", "dispatched"), type="executable")}).image,
)  # fmt: skip
_HOSTS = [
    json.loads(encode(host))
    for host in (
        describe_host(KNOWLEDGE, cpu="haswell", gpus=("Tesla V100",), driver="396.44", glibc="2.17", kernel="3.10"),
        probe_host(str(CHECKOUT / "tests/fixtures/hosts/broadwell-k80"), KNOWLEDGE),
    )
]
_STRANGE = ("", "unknown", "535.x", "2.17-ubuntu", ".", "1..2", "-1", "9" * 5000, "\x1b[31m", "a\nb", "1.2.3.4.5.6")


def _places(document: Any, above: tuple = ()) -> Iterator[tuple]:
    """Where strings stand."""
    if isinstance(document, str):
        yield above
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document if isinstance(document, list) else ())
    )
    for key, value in pairs:
        yield from _places(value, (*above, key))


def _with(document: Any, place: tuple, value: str) -> bytes:
    changed = json.loads(json.dumps(document))
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return json.dumps(changed).encode()


def _judge(document: bytes) -> None:
    try:
        host = decode(document, HostProfile, "host.json")
    except ImgcheckError:
        return
    for profile in _IMAGES:
        report = check(profile, [host], Request(), KNOWLEDGE)
        assert "\x1b[31m" not in terminal_report(report, terminal=False)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_text_in_any_field_gives_a_verdict_or_a_plain_refusal(data: st.DataObject) -> None:
    document = data.draw(st.sampled_from(_HOSTS))
    place = data.draw(st.sampled_from(list(_places(document))))
    _judge(_with(document, place, data.draw(st.sampled_from(_STRANGE) | st.text(max_size=8))))


@pytest.mark.parametrize("strange", _STRANGE)
def test_a_capability_that_is_no_number_is_unknown(strange: str) -> None:
    place = ("gpus", "value", 0, "compute_capability")
    assert place in _places(_HOSTS[0])
    _judge(_with(_HOSTS[0], place, strange))


def test_a_schema_version_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(ImgcheckError, match="newer than this imgcheck reads"):
        decode(_with(_HOSTS[0], ("schema_version",), "9" * 5000), HostProfile, "host.json")


def test_the_hosts_as_they_are_give_a_verdict() -> None:
    # The control: without a document that decodes, the tests above would judge nothing.
    for document in _HOSTS:
        assert decode(json.dumps(document).encode(), HostProfile, "host.json").cpu.architecture.known
