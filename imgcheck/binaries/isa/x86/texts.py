"""What comparing texts tells of the CPU, where that has chosen one of them: a level that goes by its name."""

from imgcheck.binaries.isa.names import analysis
from imgcheck.binaries.isa.values import Options, Value, combined
from imgcheck.binaries.isa.x86.state import Initial

_LONGEST = 64
"""Letters."""


def compared_texts(function: str, arguments: tuple[Value, Value, Value], initial: Initial) -> Value:
    """The result of a library function that compares texts: 0 where they are the same; None where that is not known.

    1 stands for all that tells them apart, and letters of either case are the same. `arguments` are what is known of
    its first three, `initial` tells what lies at an address when the file is loaded.
    """
    one, other, length = arguments
    rules = analysis()["texts"]
    if function in rules["whole"]:
        count = _LONGEST
    elif function in rules["counted"] and isinstance(length, Options) and length.constant is not None:
        count = length.constant
    else:
        return None
    if not (isinstance(one, Options) and isinstance(other, Options)):
        return None
    addresses = {address for address, _ in (*one.numbers, *other.numbers)}
    texts = {address: text for address in addresses if (text := _text(address, initial)) is not None}
    if len(texts) < len(addresses):
        return None
    return combined(lambda a, b: int(texts[a][:count] != texts[b][:count]), one, other, 32)


def _text(address: int, initial: Initial) -> bytes | None:
    """The text at an address, in small letters; None where there is none, or it is long."""
    found = bytearray()
    while len(found) < _LONGEST:
        byte = initial(address + len(found), 1)
        if not isinstance(byte, Options) or byte.constant is None:
            return None
        if byte.constant == 0:
            return bytes(found).lower()
        found.append(byte.constant)
    return None
