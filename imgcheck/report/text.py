"""Text that comes from images or hosts, made safe for a terminal."""

import re
import unicodedata


def safe(text: str) -> str:
    r"""`text` with everything that could steer a terminal or mislead a reader written as `\xNN` or `\uNNNN`.

    That is: control characters (C0, C1, DEL), format characters such as bidirectional overrides, line and paragraph
    separators, surrogates, private use, and what is no character (of which XML 1.0 refuses some). Newlines are
    escaped too: who wants lines splits before.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(character) if _steers(character) else character for character in text)


def _steers(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cn", "Cs", "Co", "Zl", "Zp")


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def safe_command(text: str) -> str:
    r"""A shell command as `safe`, but one that still does the same: `$'\012'` for each such character.

    The text must be quoted as shlex.quote does, which puts such characters between single quotes. What reads it is
    bash, zsh, ksh, or another shell of POSIX.1-2024.
    """
    return "".join(_quoted(character) if _steers(character) else character for character in text)


def _quoted(character: str) -> str:
    data = character.encode("utf-8", "surrogateescape")
    return "'$'" + "".join(f"\\{byte:03o}" for byte in data) + "''"


def clipped(content: str, limit: int) -> str:
    """`content` cut between words; the JSON report has it whole."""
    return content if len(content) <= limit else content[:limit].rsplit(" ", 1)[0] + " ..."


def placeholders(text: str) -> str:
    """A catalogue's text without a finding to fill it: `{library}` reads `<library>`."""
    return re.sub(r"\{(\w+)\}", r"<\1>", text)
