"""Which encodings exist and what each needs: tables built from the decoder's own list of instructions.

iced-x86 knows the CPUID features and the encoding of each of its 4,900 instruction forms (operand sizes included: a
ymm integer operation is AVX2, an EVEX form on xmm needs AVX512VL). Reading them at start takes 10 ms and cannot
drift from the decoder that confirms. Encoding layouts: Intel SDM volume 2, chapter 2; AMD manual volume 6 for XOP.
"""

import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain, product
from typing import Any

import iced_x86 as iced
import numpy as np

from imgcheck.binaries.isa.names import analysis
from imgcheck.binaries.kernels.x86 import Screen

_PREFIXES = {iced.MandatoryPrefix.NONE: (0, 1, 2, 3), iced.MandatoryPrefix.PNP: (0,), iced.MandatoryPrefix.P66: (1,),
             iced.MandatoryPrefix.PF3: (2,), iced.MandatoryPrefix.PF2: (3,)}  # fmt: skip
_MAPS = {iced.OpCodeTableKind.T0F: 1, iced.OpCodeTableKind.T0F38: 2, iced.OpCodeTableKind.T0F3A: 3,
         iced.OpCodeTableKind.MAP5: 5, iced.OpCodeTableKind.MAP6: 6, iced.OpCodeTableKind.MAP8: 8,
         iced.OpCodeTableKind.MAP9: 9, iced.OpCodeTableKind.MAP10: 10}  # fmt: skip
_VECTOR = {iced.EncodingKind.VEX: 0, iced.EncodingKind.EVEX: 1, iced.EncodingKind.XOP: 2}
_HARMLESS = (
    iced.Mnemonic.TZCNT,
    iced.Mnemonic.PREFETCHNTA,
    iced.Mnemonic.PREFETCHT0,
    iced.Mnemonic.PREFETCHT1,
    iced.Mnemonic.PREFETCHT2,
)
"""They run as BSF and as no-operations where the CPU lacks them. BSF gives the same but for 0, of which compilers take
care: they write TZCNT for any CPU.
"""
_BROADCASTS = (iced.Mnemonic.VBROADCASTSS, iced.Mnemonic.VBROADCASTSD)
QUERIES = ("cpuid", "xgetbv")
_QUERIES = {iced.Mnemonic.CPUID: "cpuid", iced.Mnemonic.XGETBV: "xgetbv"}
BASELINE = ("sse", "sse2")
"""What every 64-bit CPU has."""
VECTOR = ("avx", "avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd", "avx512_fp16",
          "fma4", "xop", "avx_vnni", "vaes", "vpclmulqdq")  # fmt: skip
"""Vector code in VEX and EVEX encodings."""
PACKED = "packed"
"""Arithmetic on several numbers at once, as kernels do it: counts as a feature, so that the same screen finds it.

Compilers copy, clear, compare and shuffle with vectors in any code; that is none.
"""
_PACKED = re.compile(
    r"V?(?:ADD|SUB|MUL|DIV|SQRT|RCP|RSQRT|HADD|HSUB|ADDSUB|DP)P[SDH]"
    r"|VFN?M(?:ADD|SUB|ADDSUB|SUBADD)(?:132|213|231)?P[SDH]"
    r"|V?P(?:MADD\w+|MULL[WDQ]|MULH\w+|MULU?DQ|SADBW|DPB\w+|DPW\w+)|VDPBF16PS|TDP\w+"
)
UNDECODED = {"apx", "avx10"}
"""Features of encodings that the decoder does not know: seen by their form alone."""


@dataclass(frozen=True)
class Encodings:
    """Feature sets and the tables that lead from bytes to them.

    `sets[i]` is a set of feature names, `member[i, f]` tells that it holds `features[f]`; set 0 is empty. QUERIES and
    PACKED count as features, so that the same screen finds them.
    """

    features: tuple[str, ...]
    sets: tuple[frozenset[str], ...]
    member: np.ndarray
    legacy: np.ndarray
    """[map, prefix, opcode, reg] to a set: maps 1 = 0F, 2 = 0F 38, 3 = 0F 3A; prefixes none, 66, F3, F2."""
    ambiguous: np.ndarray
    """Like `legacy`: instructions with different needs share this key, and only the decoder tells them apart."""
    vector: np.ndarray
    """[VEX or EVEX or XOP, map & 7, prefix, opcode, W, L] to a set."""
    ambiguous_vector: np.ndarray
    """Like `vector`: the ModRM byte chooses among instructions with different needs, as in EVEX 0F 73."""
    avx: int
    """The set of AVX alone."""
    apx: int
    avx10: int
    bits: int
    """Of the code that they are for: 32 or 64."""

    _held: dict[tuple[str, ...], np.ndarray] = field(default_factory=dict)

    @cached_property
    def screen(self) -> Screen:
        """The same in the form in which all code is looked through."""
        sets = self.avx, self.apx, self.avx10
        return Screen(self.vector, self.ambiguous_vector, self.legacy, self.ambiguous, sets, self.bits)

    @cached_property
    def number(self) -> dict[frozenset[str], int]:
        """The index of each of `sets`."""
        return {one: i for i, one in enumerate(self.sets)}

    def holding(self, *features: str) -> np.ndarray:
        """Which sets hold one of `features`."""
        if features not in self._held:
            columns = [self.features.index(f) for f in features if f in self.features]
            self._held[features] = np.any(self.member[:, columns], axis=1)
        return self._held[features]

    @cached_property
    def baseline_alone(self) -> np.ndarray:
        """Which sets hold nothing but what every CPU has that runs such code; of 32-bit code none does."""
        return np.array([self.bits == 64 and one <= {*BASELINE, PACKED} for one in self.sets])


@cache
def names() -> dict[int, str]:
    """The decoder's numbers of the features that decide on real machines, to the names Linux gives them."""
    return {getattr(iced.CpuidFeature, theirs): ours for theirs, ours in analysis()["x86"]["features"].items()}


def needs(instruction: iced.Instruction) -> frozenset[str]:
    """The features that one decoded instruction needs; empty for what runs, or runs as a no-operation, everywhere."""
    if instruction.mnemonic in _QUERIES:
        return frozenset({_QUERIES[instruction.mnemonic]})
    if instruction.mnemonic in _HARMLESS:
        return frozenset()
    if instruction.mnemonic in _BROADCASTS and instruction.encoding == iced.EncodingKind.VEX:
        # AVX has the form that reads memory, AVX2 added the one that reads a register; both share one Code.
        return frozenset({"avx" if instruction.op1_kind == iced.OpKind.MEMORY else "avx2"})
    return _listed(instruction)


def _listed(instruction: iced.Instruction) -> frozenset[str]:
    wanted = names()
    found = frozenset(wanted[f] for f in instruction.cpuid_features() if f in wanted)
    return found | {PACKED} if found and instruction.mnemonic in _packed() else found


@cache
def _packed() -> frozenset[int]:
    """The decoder's numbers of the mnemonics that compute on several numbers at once."""
    return frozenset(number for name, number in vars(iced.Mnemonic).items() if re.fullmatch(_PACKED, name))


class _Builder:
    """Collects what each key may be, then numbers the sets."""

    def __init__(self) -> None:
        self.legacy: dict[tuple[int, ...], list[frozenset[str]]] = {}
        self.vector: dict[tuple[int, ...], list[frozenset[str]]] = {}

    def enter(self, info: iced.OpCodeInfo, found: frozenset[str]) -> None:
        place, opcode = _MAPS.get(info.table), info.op_code
        regs = range(8) if info.group_index < 0 else (info.group_index,)
        if info.op_code_len == 2:  # the second byte is a fixed ModRM, as in 0F 01 D0
            opcode, regs = opcode >> 8, ((opcode >> 3) & 7,)
        if place is None:
            return
        prefixes = _PREFIXES[info.mandatory_prefix]
        if info.encoding == iced.EncodingKind.LEGACY:
            for legacy in product((place,), prefixes, (opcode,), regs):
                self.legacy.setdefault(legacy, []).append(found)
        elif info.encoding in _VECTOR:
            widths = (0, 1) if info.is_wig or info.is_wig32 else (info.w,)
            lengths = (0, 1, 2) if info.is_lig else (info.l,)
            for vector in product((_VECTOR[info.encoding],), (place & 7,), prefixes[:1], (opcode,), widths, lengths):
                self.vector.setdefault(vector, []).append(found)

    def build(self, bits: int) -> Encodings:
        number: dict[frozenset[str], int] = {frozenset(): 0}
        legacy, ambiguous = np.zeros((4, 4, 256, 8), np.uint8), np.zeros((4, 4, 256, 8), bool)
        for found in chain(*self.legacy.values(), *self.vector.values()):
            number.setdefault(found, len(number))
        vector = np.zeros((3, 8, 4, 256, 2, 4), np.uint8)
        ambiguous_vector = np.zeros(vector.shape, bool)
        for key, perhaps in self.legacy.items():
            legacy[key] = number.setdefault(frozenset().union(*perhaps), len(number))
            ambiguous[key] = len(set(perhaps)) > 1
        for key, perhaps in self.vector.items():
            vector[key] = number.setdefault(frozenset().union(*perhaps), len(number))
            ambiguous_vector[key] = len(set(perhaps)) > 1
        avx, apx, avx10 = (number.setdefault(frozenset({f}), len(number)) for f in ("avx", "apx", "avx10"))
        sets = tuple(number)
        features = tuple(sorted(frozenset().union(*sets)))
        member = np.array([[feature in one for feature in features] for one in sets], bool)
        return Encodings(features, sets, member, legacy, ambiguous, vector, ambiguous_vector, avx, apx, avx10, bits)


@cache
def encodings(bits: int) -> Encodings:
    """The tables for 32-bit or 64-bit code."""
    builder, probe = _Builder(), iced.Instruction()
    code: Any  # the decoder's types know the numbers by their names alone
    for code in sorted(v for v in vars(iced.Code).values() if isinstance(v, int)):
        info = iced.OpCodeInfo(code)
        # What has a decoder option was taken back or belongs to other makers' CPUs: the decoder does not tell it.
        if info.is_instruction and not info.decoder_option and (info.mode64 if bits == 64 else info.mode32):
            probe.code = code
            builder.enter(info, needs(probe))
    return builder.build(bits)
