"""Data files of a site that hold something else than they should."""

from pathlib import Path

import pytest

from imgcheck.errors import KnowledgeError
from imgcheck.knowledge import Knowledge


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("rule = 5", r"`rule` is no list of tables: write \[\[rule\]\]"),
        ("[rule]\nid = 'CPU001'", r"`rule` is no list of tables"),
        ("rule = [5]", "Expected `object`, got `int`"),
        ("a = " + "[" * 100_000, "not valid TOML"),
    ],
)
def test_file_of_another_shape_is_named(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "catalogue").mkdir()
    (tmp_path / "catalogue/own.toml").write_text(content)
    with pytest.raises(KnowledgeError, match=rf"own\.toml: .*{said}"):
        _ = Knowledge((tmp_path,)).catalogue
