"""Files that ask for the same share what they load, and nobody can tell: each gets what it would get by itself."""

import pytest
from hypothesis import given, settings

from imgcheck.documents.image import ImageProfile
from imgcheck.loader import model
from imgcheck.loader.closure import Closure
from imgcheck.loader.model import Loader
from tests.loader.random_images import images


def _told(closure: Closure) -> tuple[object, ...]:
    """All of a closure, with the order of what is kept in order."""
    tables = (closure.reaches, closure.chosen, closure.opens, closure.loaded)
    return closure.problems, closure.contextual, *(list(table.items()) for table in tables), closure.libcs


@settings(max_examples=150, deadline=None)
@given(images())
def test_each_file_loads_what_it_would_load_by_itself(image: ImageProfile) -> None:
    shared = _told(Loader(image).close())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "_asked", lambda *_: None)
        assert _told(Loader(image).close()) == shared
