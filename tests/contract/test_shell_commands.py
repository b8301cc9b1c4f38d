"""The commands of scripts as profiles keep them in one string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgcheck.documents.image import Script
from imgcheck.documents.shell_commands import ShellCommand, packed
from imgcheck.errors import DocumentError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["\\", "\t", "\n", "\\n", "c:?1"]
)
NUMBERS = st.integers(-999, 999)
COMMANDS = st.builds(
    ShellCommand,
    st.lists(TEXT, min_size=1, max_size=4).map(tuple),
    st.booleans(),
    TEXT,
    st.booleans(),
    st.lists(NUMBERS, max_size=3).map(tuple),
    NUMBERS,
)


@given(st.lists(COMMANDS, max_size=4))
def test_every_command_comes_back(commands: list[ShellCommand]) -> None:
    assert Script("/run", (), packed(commands)).commands == tuple(commands)


def test_a_plain_command_is_its_words_behind_tabs() -> None:
    plain, other = ShellCommand(("exec", "a b")), ShellCommand(("x",), True, "main", True, (1, -2), 3)
    assert packed([plain, other]) == "\texec\ta b\ncf1,-2?3:main\tx"


@given(st.text(st.sampled_from("cf?:,-1\\nt\t\n é"), max_size=20))
def test_what_nobody_has_packed_is_read_or_refused(text: str) -> None:
    try:
        assert all(command.words for command in Script("/run", (), text).commands)
    except DocumentError as error:
        assert "damaged commands of a script" in error.message


@pytest.mark.parametrize("text", ["exec", "x\texec", "1,\texec", "\texec\n", f"?{'9' * 5000}\texec"])
def test_damaged_commands_are_refused(text: str) -> None:
    with pytest.raises(DocumentError, match="damaged commands of a script"):
        _ = Script("/run", (), text).commands
