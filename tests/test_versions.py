"""Versions of hostile images, drivers and kernels: what counts as one, and which is older."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgcheck import versions

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)*")
_TEXTS = st.text(st.sampled_from("0123456789..-x ²٣"), max_size=12)


@given(_TEXTS)
def test_the_leading_dotted_number_counts(text: str) -> None:
    match = _NUMBER.match(text)
    assert versions.parse(text) == (tuple(map(int, match[0].split("."))) if match else ())


@given(_TEXTS)
def test_a_driver_has_a_release_of_three_digits_or_more(text: str) -> None:
    assert versions.is_driver(text) == bool(re.fullmatch(r"[0-9]{3,4}\.[0-9]+(?:\.[0-9]+)?", text))


@pytest.mark.parametrize("text", ["9" * 5000, "1." * 5000, "." * 5000])
def test_thousands_of_digits_are_no_version(text: str) -> None:
    assert versions.parse(text) == ()


@pytest.mark.parametrize(
    ("left", "right", "sign"), [("12.2", "12.2.0", 0), ("9.9", "10.0", -1), ("3.10.0-957.el7", "3.2", 1), ("", "0", 0)]
)
def test_numbers_are_compared_not_letters(left: str, right: str, sign: int) -> None:
    assert versions.compare(left, right) == sign
