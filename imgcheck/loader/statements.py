"""Import statements in a text of Python: which modules it names, and whether it surely imports them.

For certain a text imports what statements at its top name, of an application's own also those in functions. Behind a
condition or in `try` it may be otherwise, and functions of packages may never be called. What an application names in
quotes counts as well, since settings name modules so ("app.settings").
"""

import re
from collections.abc import Container, Iterable, Iterator
from itertools import accumulate
from typing import Literal

from msgspec import Struct

Sure = Literal["certain", "guarded", "conditional", "later"]

_STATEMENT = re.compile(
    rb"(?:^|[;:])[ \t]*(?:from(?=[ \t.])[ \t]*([.\w]+)[ \t]*\bimport\b[ \t]*(\((?:[^()#]|#[^\n]*+)*+\)?|[^\n;#]*)"
    rb"|import[ \t]+([A-Za-z_][^\n;#]*))",
    re.MULTILINE,
)
_LIST = re.compile(rb"\((?:[^()#]|#[^\n]*+)*+\)")
_LONGEST = 1 << 14
"""Bytes of a list of names in parentheses."""
_COMMENT = re.compile(rb"#[^\n]*")
_DOTTED = re.compile(r"\.*[^\W\d]\w*(?:\.[^\W\d]\w*)*", re.ASCII)
_QUOTED = re.compile(rb"[\"']([A-Za-z_]\w*)(?:[.:][\w.:]*)?[\"']")
_FILES = re.compile(
    rb"[\"'](?:(/[\w+.,@/-]{2,200})(?: [^\"'\n]{0,500})?"
    rb"|([\w+.,@/-]{0,200}\.(?:so(?:\.\d+){0,4}|cubin|fatbin|ptx|hsaco)))[\"']"
)
"""A whole path, behind which words may stand as in the line of a command, or the name of a file with code."""
_INSIDE = b" \t\r\n#)]}"
"""What a line of a module begins with that is no statement of its own."""
_LATER = re.compile(rb"(?:async[ \t]+)?def\b")
_AS_PROGRAM = re.compile(rb"if[ \t]+__name__\b")
_CONDITION = re.compile(rb"(?:if|elif|else|try|except|finally|for|while|case)\b|with[ \t]+(?:\w+\.)?suppress\(")
_TRY = re.compile(rb"try[ \t]*:")
_HANDLER = re.compile(rb"^except(?:[ \t]*:|\b[^\n]*\b(?:ImportError|(?:Base)?Exception)\b)", re.MULTILINE)
"""What a module that misses a library comes to."""
_NEXT_STATEMENT = re.compile(rb"^(?!except\b|else\b|finally\b)[^\s#)\]}]", re.MULTILINE)
_GIVES_UP = re.compile(rb"\braise\b|\bexit\(")
_BLANKS = re.compile(rb"[ \t]+")
_NO_STATEMENT = (b"", b"\n", b"\r", b"#", b")", b"]", b"}")
"""What a line begins with that is none."""
_ELSEWHERE = re.compile(
    rb"(?:el)?if[ \t(]+(?:(?:\w+\.)?TYPE_CHECKING\b|(?:sys\.platform|os\.name|platform\.system\(\))[ \t]*"
    rb"(?:==[ \t]*|\.startswith\()[\"'](?:win|nt|cygwin|darwin|Windows|Darwin|java))"
)
"""For type checkers, or other systems than Linux."""
_ANYTHING = re.compile(
    rb"(?:import_module|__import__)\((?![ \t]*[\"'])"
    rb"|\bexec\(|\bexec_module\b|\bsys\.path\b|\brun_(?:path|module)\b"
)
_CALLED = re.compile(rb"(?:import_module|__import__)\([ \t]*[\"']([A-Za-z_][\w.]*)")
_ASKED = re.compile(rb"(?:import\w*|find_spec|Lazy\w*)\([ \t]*[\"']([A-Za-z_][\w.]*)")
"""As packages ask for what they can do without: import_optional_dependency("x"), find_spec("x"), LazyLoader("x")."""
_ASKING = (b"import_", b"_import(", b"find_spec(", b"Lazy")
_PLUGINS = re.compile(rb"\b(?:iter_)?entry_points\(")
_METHOD = re.compile(rb"^[ \t]+(?:async[ \t]+)?def\b", re.MULTILINE)
_QUOTES = (b'"""', b"'''")


class Statements(Struct, frozen=True, array_like=True, omit_defaults=True):
    """The modules that a text names, each for the strongest way in which it does.

    `a.b.c` for `import a.b.c` as for `from a.b import c`, of which only the tree tells whether c is a module, and with
    the dots of relative imports in front (`..b.c`).
    """

    certain: tuple[str, ...] = ()
    """Whoever imports or runs the text imports them."""
    conditional: tuple[str, ...] = ()
    """The same, on a condition, or as far as they are there."""
    later: tuple[str, ...] = ()
    """Functions may import them, or they stand in quotes."""
    anything: bool = False
    """It imports by names that it works out, or runs code that is no text of its own."""
    plugins: bool = False
    """It asks for what packages offer as plug-ins."""
    mentions: tuple[str, ...] = ()
    """Libraries and files of GPU code that words in quotes name, and whole paths."""
    guarded: tuple[str, ...] = ()
    """Those of `conditional` that it goes on without (`try`, with no `raise` where that fails)."""

    @property
    def named(self) -> Iterator[str]:
        """All of them."""
        yield from self.certain
        yield from self.conditional
        yield from self.later


def told_apart(name: str, known: Container[str]) -> str:
    """`name`, or the innermost module above it that is among `known`; the top-level one where none is."""
    above = list(accumulate(name.split("."), "{}.{}".format))
    return next((each for each in reversed(above) if each in known), above[0])


def of_package(text: bytes) -> Statements:
    """Those of a text of a package."""
    asked = _ASKED.findall(text) if any(word in text for word in _ASKING) else ()
    return _sorted_out(_by_certainty(text, own=False), later=asked, plugins=_asks_for_plugins(text))


def of_application(text: bytes) -> Statements:
    """Those of an application's own text."""
    found = _by_certainty(text, own=True)
    found["certain"] += _CALLED.findall(text)
    files = {(path or name).decode("ascii", "replace") for path, name in _FILES.findall(text)}
    return _sorted_out(
        found,
        later=_QUOTED.findall(text),
        anything=_ANYTHING.search(text) is not None,
        plugins=_asks_for_plugins(text),
        mentions=tuple(sorted(files)),
    )


def _asks_for_plugins(text: bytes) -> bool:
    return b"entry_points" in text and _PLUGINS.search(text) is not None


def _sorted_out(
    found: dict[Sure, list[bytes]],
    later: Iterable[bytes],
    anything: bool = False,
    plugins: bool = False,
    mentions: tuple[str, ...] = (),
) -> Statements:
    certain = _decoded(found["certain"])
    guarded = _decoded(found["guarded"]) - certain - _decoded(found["conditional"])
    conditional = _decoded(found["conditional"]) - certain | guarded
    others = _decoded((*found["later"], *later)) - certain - conditional
    return Statements(
        tuple(sorted(certain)), tuple(sorted(conditional)), tuple(sorted(others)), anything, plugins, mentions,
        tuple(sorted(guarded)),
    )  # fmt: skip


def _by_certainty(text: bytes, own: bool) -> dict[Sure, list[bytes]]:
    lines: dict[Sure, list[bytes]] = {"certain": [], "guarded": [], "conditional": [], "later": []}
    for line, sure in _lines(text, own):
        lines[sure].append(line)
    return {sure: list(_names(b"\n".join(each))) for sure, each in lines.items()}


def _names(text: bytes) -> Iterator[bytes]:
    for module, taken, listed in _STATEMENT.findall(text):
        if taken[:1] == b"(":
            taken = _COMMENT.sub(b"", taken).strip(b"()")
        above = module if not module or module.endswith(b".") else module + b"."
        for name in (taken if module else listed).split(b","):
            words = name.split(None, 1)
            if words:
                yield above + words[0] if words[0] != b"*" else module


def _lines(text: bytes, own: bool) -> Iterator[tuple[bytes, Sure]]:
    """Statements with "import" in them, and how surely they run, but for those of what is for type checkers or other
    systems. Of an application's own text its functions count as run.

    Few lines have the word, and finding them costs a tenth of what an expression takes for all.
    """
    text = _without_strings(text.replace(b"\\\n", b" "))
    statement, looked_at, left_out = -1, 0, False
    around = _Around(text, 0)
    sure: Sure = "certain"
    at = text.find(b"import")
    while at >= 0:
        begin, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        above, end = _statement(text, begin, statement, looked_at), len(text) if end < 0 else end
        if above != statement:
            as_program = bool(_AS_PROGRAM.match(text, above))
            left_out = bool(_ELSEWHERE.match(text, above)) or (as_program and not own)
            sure = _certainty(text, above, own, as_program)
            statement = looked_at = above
            around = _Around(text, above)
        if not own and text.startswith(b"class", above) and _METHOD.search(text, looked_at, begin):
            sure = "later"
        looked_at = begin
        opened = text.find(b"(", at, end)
        if opened >= 0 and (listed := _LIST.match(text, opened, opened + _LONGEST)):
            end = max(end, listed.end())
        if not left_out:
            guarded = own and sure == "certain" and begin > above and around.is_condition(begin)
            yield text[begin:end], "conditional" if guarded else sure
        at = text.find(b"import", end)


def _without_strings(text: bytes) -> bytes:
    """`text` with strings over several lines taken out, in which documentation has statements as examples.

    As it is where their quotes do not pair: then something else has such quotes in it.
    """
    pieces, at = [], 0
    begins = [text.find(quotes) for quotes in _QUOTES]
    while max(begins) >= 0:
        kind = min((begin, kind) for kind, begin in enumerate(begins) if begin >= 0)[1]
        end = text.find(_QUOTES[kind], begins[kind] + 3)
        if end < 0:
            return text
        pieces.append(text[at : begins[kind]])
        at = end + 3
        begins = [
            begin if begin >= at or begin < 0 else text.find(q, at) for q, begin in zip(_QUOTES, begins, strict=True)
        ]
    return b'""'.join([*pieces, text[at:]])


def _certainty(text: bytes, statement: int, own: bool, as_program: bool) -> Sure:
    """How surely what stands in the module's statement at `statement` runs."""
    if not own and _LATER.match(text, statement):
        return "later"
    if not _CONDITION.match(text, statement) or as_program:
        return "certain"
    return "guarded" if _is_passed_over(text, statement) else "conditional"


def _is_passed_over(text: bytes, statement: int) -> bool:
    """Whether the module's statement is a `try` behind which it goes on where an import fails."""
    if not _TRY.match(text, statement):
        return False
    following = _NEXT_STATEMENT.search(text, _next_line(text, statement))
    end = following.start() if following else len(text)
    handler = _HANDLER.search(text, statement, end)
    return handler is not None and not _GIVES_UP.search(text, handler.start(), end)


class _Around:
    """What stands around the lines of one statement of a module: conditions, and `try`, inside a function."""

    def __init__(self, text: bytes, statement: int) -> None:
        self._text, self._at = text, _next_line(text, statement)
        self._open: list[tuple[int, bool]] = []
        """How far the lines around the last one are indented, and whether they or one around them is a condition."""

    def is_condition(self, begin: int) -> bool:
        """Whether there is one around the line at `begin`, which stands behind those that were asked for before."""
        while self._at < begin:
            self._take(self._at)
            self._at = _next_line(self._text, self._at)
        self._leave(_indent(self._text, begin))
        return bool(self._open) and self._open[-1][1]

    def _take(self, begin: int) -> None:
        indent = _indent(self._text, begin)
        if self._text[begin + indent : begin + indent + 1] not in _NO_STATEMENT:
            self._leave(indent)
            inside = bool(self._open) and self._open[-1][1]
            self._open.append((indent, inside or bool(_CONDITION.match(self._text, begin + indent))))

    def _leave(self, indent: int) -> None:
        while self._open and self._open[-1][0] >= indent:
            self._open.pop()


def _next_line(text: bytes, begin: int) -> int:
    end = text.find(b"\n", begin)
    return len(text) if end < 0 else end + 1


def _indent(text: bytes, begin: int) -> int:
    match = _BLANKS.match(text, begin)
    return match.end() - begin if match else 0


def _statement(text: bytes, begin: int, known: int, looked_at: int) -> int:
    """Where the module's statement begins that the line at `begin` stands in; of the line at `looked_at`, above it,
    that is known.
    """
    while begin > looked_at and text[begin] in _INSIDE:
        begin = text.rfind(b"\n", 0, begin - 1) + 1
    return begin if begin > looked_at else max(known, 0)


def _decoded(names: Iterable[bytes]) -> set[str]:
    decoded = {name.decode("ascii", "replace").strip() for name in names}
    return {name for name in decoded if _DOTTED.fullmatch(name) or (name and not name.strip("."))}
