"""Bytes that nobody meant to write: every reader ends with a tree or with one of our errors, and ends soon."""

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imgcheck.errors import ImgcheckError
from tests.convert.readers import READERS, seeds


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    return seeds(tmp_path_factory.mktemp("seeds"))


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Iterator[str]:
    return request.param


def test_the_examples_are_images(reader, examples):
    """What the fuzzers start from must be taken, or they would only ever try the first check."""
    taken = 0
    for data in examples[reader]:
        with suppress(ImgcheckError):
            READERS[reader](data)
            taken += 1
    assert taken * 2 >= len(examples[reader]) or (reader == "layout" and taken >= 4)


def _mutated(draw: st.DrawFn, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 5))):
        position = draw(st.integers(0, len(changed)))
        match draw(st.integers(0, 3)):
            case 0:
                value = draw(st.binary(min_size=1, max_size=12))
                changed[position : position + len(value)] = value
            case 1:
                del changed[position : position + draw(st.integers(1, 600))]
            case 2:
                start = draw(st.integers(0, len(changed)))
                changed[position:position] = changed[start : start + draw(st.integers(1, 600))]
            case 3:
                width = draw(st.sampled_from((1, 2, 4, 8)))
                number = draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)))
                changed[position : position + width] = bytes([number]) * width
    return bytes(changed)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_images_end_in_a_tree_or_an_error(reader, examples, data):
    original = data.draw(st.sampled_from(examples[reader]))
    changed = _mutated(data.draw, original)
    began = time.process_time()
    with suppress(ImgcheckError):
        READERS[reader](changed)
    assert time.process_time() - began < 5


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=2000))
def test_any_bytes_end_in_a_tree_or_an_error(reader, data):
    with suppress(ImgcheckError):
        READERS[reader](data)
