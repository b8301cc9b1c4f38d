"""Text from images steers neither terminal nor reader."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgcheck.report.text import safe, safe_command


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\rb", "a\\x0db"),
        ("bell\x07", "bell\\x07"),
        ("csi\x9b31m", "csi\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("line\nbreak", "line\\x0abreak"),
        ("\udcff", "\\xff"),
        ("\uffff", "\\uffff"),
        ("tag\U000e0041", "tag\\U000e0041"),
    ],
)
def test_what_steers_a_terminal_is_shown_as_an_escape(hostile, shown):
    assert safe(hostile) == shown


def test_ordinary_names_in_any_script_stay_as_they_are():
    assert safe("/usr/lib/Größe/日本語 [bold]x[/bold]") == "/usr/lib/Größe/日本語 [bold]x[/bold]"


@given(st.text())
def test_the_result_is_printable_and_valid_unicode(text):
    result = safe(text)
    result.encode()
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in result)


def test_a_command_with_control_characters_can_be_pasted_and_does_the_same():
    words = ["printf", "%s|", "a\n\tb", "it's\x1b[2J", "\u202e", "plain", "\udcff\r"]
    line = safe_command(shlex.join(words))
    assert line.replace("\n", "").isprintable()
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert done.stdout == "".join(f"{word}|" for word in words[2:]).encode("utf-8", "surrogateescape")
