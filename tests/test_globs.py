"""Shell patterns by their beginning: the same answers as fnmatch gives."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgcheck.globs import Index, fits, parts

_TEXT = st.text("ab*?[]!.", max_size=8)


@given(_TEXT, _TEXT)
def test_it_answers_as_fnmatch(name, pattern):
    assert fits(name, pattern) == fnmatchcase(name, pattern)


@pytest.mark.parametrize(("name", "pattern"), [("libmpi.so.40", "libmpi.so*"), ("libmpi.so", "libmpi.so")])
def test_names_fit(name, pattern):
    assert fits(name, pattern)
    assert not fits(f"x{name}", pattern)


def test_a_pattern_is_taken_apart_at_its_first_wildcard():
    assert parts("libGLESv*_nvidia.so*") == ("libGLESv", "*_nvidia.so*")


@given(_TEXT, st.lists(_TEXT, max_size=5))
def test_an_index_gives_the_first_pattern_that_fits(name, patterns):
    first = next((pattern for pattern in patterns if fits(name, pattern)), None)
    assert Index((pattern, pattern) for pattern in patterns).first(name) == first
