"""Required, dispatched or unknown: each feature's answer with its reason."""

import iced_x86 as iced
import numpy as np

from imgcheck.binaries.isa.x86.decode import decode_at
from imgcheck.binaries.isa.x86.findings import Findings
from imgcheck.documents.facts import Answer, Isa, IsaUse

_UNDECODED_REASON = "well-formed encodings that no decoder at hand knows"


def judge(found: Findings) -> Isa:
    """The answer for every feature that a confirmed instruction of the file needs."""
    uses = tuple(_use(found, feature) for feature in found.features)
    return Isa(
        uses=uses,
        baseline=_baseline(uses),
        code_bytes=found.layout.code_bytes,
        vector_functions=int((found.vector | found.legacy).sum()),
        asks_cpu=found.asks_cpu,
        limits=("Only a sample of the functions was decoded.",) if found.sampled else (),
    )


def _use(found: Findings, feature: str) -> IsaUse:
    users = found.using(feature)
    answer, reason, shown, path = _answer(found, feature, users)
    at = found.instructions_of(feature)
    inside = at[found.confirmed_function[at] == shown]
    first = int(found.confirmed.address[inside[0] if len(inside) else at[0]])
    text, code = _disassembly(found, first)
    return IsaUse(
        feature=feature, answer=answer, reason=reason, count=len(at), address=first, code=code, text=text,
        function=_name(found, shown) if shown >= 0 else f"sub_{first:x}", call_path=path,
    )  # fmt: skip


def _answer(found: Findings, feature: str, users: np.ndarray) -> tuple[Answer, str, int, tuple[str, ...]]:
    """Answer, reason, the function to show and the path to it."""
    first = int(np.flatnonzero(users)[0]) if users.any() else -1
    if feature in ("apx", "avx10"):
        return "unknown", f"The code holds {_UNDECODED_REASON}.", first, ()
    if not found.asks_cpu:
        return "required", "Nothing in the file asks the CPU what it has before it uses this.", first, ()
    reached, parent = found.reached_at_load
    direct = np.flatnonzero(users & reached & ~found.guards)
    if len(direct):
        path = _path(found, parent, int(direct[0]))
        return "required", "Reached at load or start without a test of the CPU on the way.", int(direct[0]), path
    vector, legacy = int(found.vector.sum()), int(found.legacy.sum())
    share = legacy / max(legacy + vector, 1)
    exported, parent = found.reached_by_exports
    open_use = np.flatnonzero(users & exported & ~found.guards)
    baseline = feature in ("avx",) and vector >= 8 and share < 0.12
    if baseline:
        reason = "Nearly all vector code of the file is in this form: it was compiled so as a whole."
        return "required", reason, int(open_use[0]) if len(open_use) else first, ()
    if len(open_use) and share < 0.25 and vector >= 8:
        path = _path(found, parent, int(open_use[0]))
        return "unknown", "Exported functions reach it without a visible test of the CPU.", int(open_use[0]), path
    return "dispatched", f"Reached only behind a test of the CPU ({', '.join(found.asks_cpu[:3])}).", first, ()


def _path(found: Findings, parent: np.ndarray, function: int) -> tuple[str, ...]:
    steps = [function]
    while parent[steps[-1]] >= 0 and len(steps) < 12:
        steps.append(int(parent[steps[-1]]))
    return tuple(_name(found, step) for step in reversed(steps))


def _name(found: Findings, function: int) -> str:
    return found.layout.name(int(found.functions.start[function]))


def _disassembly(found: Findings, address: int) -> tuple[str, str]:
    instruction = decode_at(found.layout, address, found.bits)
    if instruction is None:
        return "", found.layout.bytes_at(address, address + 8).hex()
    text = iced.Formatter(iced.FormatterSyntax.INTEL).format(instruction)
    return text, found.layout.bytes_at(address, address + instruction.len).hex()


def _baseline(uses: tuple[IsaUse, ...]) -> str:
    required = {use.feature for use in uses if use.answer == "required"}
    for level, marks in (("x86-64-v4", {"avx512f", "avx512bw", "avx512vl"}), ("x86-64-v3", {"avx2"}), ("avx", {"avx"}),
                         ("x86-64-v2", {"sse4_1", "sse4_2", "ssse3"})):  # fmt: skip
        if required & marks:
            return level
    return "x86-64"
