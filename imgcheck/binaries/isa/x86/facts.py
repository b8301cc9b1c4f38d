"""What one x86 instruction does to registers, memory and flags, worked out once for each distinct encoding.

The decoder tells this for every instruction anew, at a price that following code through whole functions feels. The
bytes of an instruction decide it, apart from where relative operands lead: operands in memory are kept as distances
from the next instruction, targets of branches beside the facts. Registers are bits of an integer, a part of a register
counting as the whole.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import iced_x86 as iced
import msgspec
from msgspec.structs import replace

from imgcheck.binaries.isa.values import Options, constant
from imgcheck.binaries.kernels.x86 import lengths

COMPUTE, LEA, SWAP, CPUID, XGETBV, CALL, INDIRECT_CALL, BRANCH, JUMP, INDIRECT_JUMP, RETURN, STOP = range(12)
"""Kinds of instructions. SWAP exchanges two whole registers, BRANCH is conditional and the first that may lead
elsewhere in the function, JUMP the first that never goes on behind itself. STOP ends the program: UD2, calls of what
never returns."""
CALLS = CALL, INDIRECT_CALL
LEADING = CALL, BRANCH, JUMP
"""What leads to an address that it names."""

_FLOW = iced.FlowControl
_KINDS = {_FLOW.CONDITIONAL_BRANCH: BRANCH, _FLOW.CALL: CALL, _FLOW.INDIRECT_CALL: INDIRECT_CALL,
          _FLOW.UNCONDITIONAL_BRANCH: JUMP, _FLOW.INDIRECT_BRANCH: INDIRECT_JUMP, _FLOW.RETURN: RETURN,
          _FLOW.EXCEPTION: STOP}  # fmt: skip
_MNEMONICS = {iced.Mnemonic.LEA: LEA, iced.Mnemonic.CPUID: CPUID, iced.Mnemonic.XGETBV: XGETBV}
OF_BITS, OF_ONE_BIT = "bits", "bit"
"""What is compared is no number but those of its bits that the number before has, or one by its place or register."""
_PLAINLY = 4
"""Parts of what a comparison compares where no single bits are looked at."""
_COMPARISONS = (iced.Mnemonic.CMP, iced.Mnemonic.TEST, iced.Mnemonic.BT)
_M = iced.Mnemonic
_MOV, _PUSH, _SUB, _XCHG = _M.MOV, _M.PUSH, _M.SUB, _M.XCHG
_CARRIES: dict[int, int] = {_M.ADC: 1, _M.SBB: -1}
# The decoder's types know its numbers by their names alone.
_full_register: Any = iced.RegisterExt.full_register
_register_size: Any = iced.RegisterExt.size
_memory_size: Any = iced.MemorySizeExt.size
_OPERATIONS = {
    _M.MOV, _M.MOVZX, _M.MOVSX, _M.MOVSXD, _M.AND, _M.OR, _M.XOR, _M.NOT, _M.SHL, _M.SHR, _M.SAR, _M.ANDN,
    _M.ADD, _M.SUB, _M.INC, _M.DEC, _M.TEST, _M.CMP, _M.BT, _M.BTS, _M.BTR, _M.ADC, _M.SBB,
    _M.BSF, _M.TZCNT, _M.CDQE,
}  # fmt: skip
VECTOR_COPIES = {
    _M.MOVD, _M.MOVQ, _M.MOVAPS, _M.MOVUPS, _M.MOVDQA, _M.MOVDQU,
    _M.VMOVD, _M.VMOVQ, _M.VMOVAPS, _M.VMOVUPS, _M.VMOVDQA, _M.VMOVDQU,
}  # fmt: skip
_OPERATIONS |= VECTOR_COPIES | {_PUSH}
_CLEARING = {_M.XOR, _M.PXOR, _M.XORPS, _M.XORPD, _M.VPXOR, _M.VXORPS, _M.VXORPD}
"""What makes nought of a register that is both of its sources."""
_NOUGHT = constant(0)
_PUSH_BYTE = b"\x6a"
"""PUSH of a number in one byte."""
_HIGH = {iced.Register.AH, iced.Register.BH, iced.Register.CH, iced.Register.DH}
_REGISTER = iced.OpKind.REGISTER
_IMMEDIATES = {value for name, value in vars(iced.OpKind).items() if name.startswith("IMMEDIATE")}
_ACCESS = iced.OpAccess
_READS = {_ACCESS.READ, _ACCESS.COND_READ, _ACCESS.READ_WRITE, _ACCESS.READ_COND_WRITE}
_WRITES = {_ACCESS.WRITE, _ACCESS.COND_WRITE, _ACCESS.READ_WRITE, _ACCESS.READ_COND_WRITE}
_R = iced.Register
FLAGS = 1
"""Stands for the flags among registers, none of which has the lowest bit: so sets of few stay small."""
THREAD = 1 << 61
"""Stands for the address of the thread's own block, below which its variables lie (ELF TLS for x86-64, variant II): FS
in 64-bit code. What lies there is known by its distance from here."""


_WORDS_HANDED = 6
"""Words on the stack that 32-bit code hands to a callee, as far as they are followed."""


def _register_bits() -> list[int]:
    """The bit of each register's whole, by the decoder's numbers: general ones first, so that masks stay small.

    Between them and the others is room for what stands for parameters of 32-bit code.
    """
    numbers = [value for value in vars(_R).values() if isinstance(value, int)]
    general = [*range(_R.RAX, _R.R15 + 1)]
    order = [0, *general, *(n for n in sorted(numbers) if n and n not in general)]
    wholes = list(dict.fromkeys(_full_register(n) if n else 0 for n in order))
    behind = 1 + len(general)
    position = {number: i + (1 + _WORDS_HANDED) * (i >= behind) for i, number in enumerate(wholes)}
    bits = [0] * (max(numbers) + 1)
    for number in numbers:
        if number:
            bits[number] = 1 << position[_full_register(number)]
    return bits


_BITS = _register_bits()
RAX, RBX, RCX, RDX, RSP = (_BITS[r] for r in (_R.RAX, _R.RBX, _R.RCX, _R.RDX, _R.RSP))
RBP = _BITS[_R.RBP]
FIRST_ARGUMENT, *PUSHED_ARGUMENTS = (_BITS[_R.R15] << k for k in range(1, 2 + _WORDS_HANDED))
"""In 32-bit code, what stands for EAX as a parameter, and for the words that are handed over on the stack (stack.py).

GCC hands functions all of whose calls it sees EAX, EDX and ECX.
"""
_IN_REGISTERS = tuple(_BITS[r] for r in (_R.RDI, _R.RSI, _R.RDX, _R.RCX, _R.R8, _R.R9))
ARGUMENTS = (*_IN_REGISTERS, FIRST_ARGUMENT, *PUSHED_ARGUMENTS)
"""Registers of the first six parameters (System V ABI, x86-64), and those that stand for some of 32-bit code."""
PUSHED = sum(PUSHED_ARGUMENTS)
HANDED = FIRST_ARGUMENT | PUSHED
"""What stands for parameters of 32-bit code."""
PARAMETERS = sum(ARGUMENTS)
CLOBBERED = sum(_IN_REGISTERS) | sum(_BITS[r] for r in (_R.RAX, _R.R10, _R.R11))
_ADDRESS_IMMEDIATES = (iced.OpKind.IMMEDIATE32, iced.OpKind.IMMEDIATE32TO64, iced.OpKind.IMMEDIATE64)
_KEPT = 1 << 16
"""Encodings remembered, at some 400 bytes each."""
_DIRECT = {0xE8: 5, 0xE9: 5, 0xEB: 2, **dict.fromkeys(range(0x70, 0x80), 2)}
"""Opcodes of CALL, JMP and Jcc whose operand is a distance, and the size of the whole instruction."""
_CONDITIONAL = frozenset(bytes([opcode]) for opcode in range(0x80, 0x90))
"""Jcc with a long distance, behind 0F."""
_CONDITIONAL_SIZE = 6
_RET = 0xC3
ADDRESSES = {32: (1 << 32) - 1, 64: (1 << 64) - 1}
"""By the mode, the bits that an address has."""


def _narrow_bits() -> list[int]:
    """The same for 32-bit code: EDI and ESI, which callees keep there, are two that they keep in 64-bit code, too.

    Segment registers are none; there each operand in memory seems to read one.
    """
    elsewhere = {_BITS[_R.RDI]: _BITS[_R.R12], _BITS[_R.RSI]: _BITS[_R.R13]}
    elsewhere |= {_BITS[r]: 0 for r in (_R.ES, _R.CS, _R.SS, _R.DS)}
    return [elsewhere.get(bit, bit) for bit in _BITS]


_NARROW_BITS = _narrow_bits()
_NUMBERED = tuple(_NARROW_BITS[r] for r in range(_R.EAX, _R.EDI + 1))
"""Registers by their numbers in 32-bit code."""


class Memory(msgspec.Struct, frozen=True, gc=False):
    """One operand in memory."""

    relative: bool
    """`displacement` counts from the next instruction."""
    base: int
    index: int
    """The index register; 0 where there is none."""
    scale: int
    displacement: int
    """Signed."""
    size: int


class Operation(msgspec.Struct, frozen=True, gc=False):
    """An instruction whose result can be told from its operands."""

    mnemonic: int
    bits: int
    """Size of the first operand."""
    target: int
    """The first operand's register; 0 where it is in memory."""
    source: int
    """The second operand's register, or the only one that a shift or a comparison with itself reads; 0 for others."""
    number: int | None
    """The immediate operand."""
    third: int
    """The register of a third operand."""
    source_bits: int
    carries: int
    """What the carry flag adds to the result: 1 of ADC, -1 of SBB, 0 of others."""
    high: bool
    """The first operand is the second byte of its register: AH, BH, CH or DH."""
    high_source: bool = False
    """The second one is."""


class Fact(msgspec.Struct, frozen=True, gc=False):
    """What one instruction does."""

    kind: int
    size: int
    read: int
    written: int
    """Without the stack pointer, and the frame pointer where the function has one."""
    loads: tuple[Memory, ...]
    """Of LEA the operand whose address it takes."""
    stores: tuple[Memory, ...]
    reads_flags: bool
    writes_flags: bool
    moves: bool
    """MOV: the written register gets what the source holds."""
    source: int
    """The register that MOV copies, 0 if none."""
    pointers: int
    """Registers that are read as parts of addresses alone."""
    lowers: int
    """Bytes by which it moves the stack pointer down; below zero it moves up. Calls and returns count for none."""
    direct: int
    """Bytes of the distance, at its end, to where it branches or calls; 0 for all else."""
    plain: bool
    """Nothing but registers and flags are concerned, and none of them gets an address."""
    invalid: bool
    comparison: tuple[int | str, ...]
    """What a comparison compares, apart from what lies in memory; a number, OF_BITS or OF_ONE_BIT last."""
    condition: int
    """Of all that depends on the flags' conditions: twice the number of the condition, and one more where it is
    reversed."""
    operation: Operation | None
    brings: Options | None
    """The number that a register gets, whatever was known before."""
    uses: int
    """What the result rests on: registers, and FLAGS."""
    makes: int
    """What is new in any case: registers, and FLAGS."""

    @property
    def idle(self) -> bool:
        """NOP of any length, and what else changes nothing."""
        changes = self.written or self.stores or self.writes_flags or self.invalid
        return self.kind == COMPUTE and not changes and not self.loads

    @property
    def with_number(self) -> tuple[int, int] | None:
        """The registers that it compares with a number, or that lead to what it compares, and that number."""
        told = self.comparison
        number = told[-1] if len(told) == _PLAINLY and told[2] in (0, told[1]) else None
        return (self.read, number) if isinstance(number, int) else None


_NOTHING = Fact(
    kind=COMPUTE, size=1, read=0, written=0, loads=(), stores=(), reads_flags=False, writes_flags=False, moves=False,
    source=0, pointers=0, lowers=0, direct=0, plain=True, invalid=False, comparison=(), condition=-1,
    operation=None, brings=None, uses=0, makes=0,
)  # fmt: skip
"""What NOP does."""


class Code(msgspec.Struct, frozen=True):
    """The instructions of a function: addresses, facts, and the targets of direct branches and calls by address."""

    ips: list[int]
    facts: list[Fact]
    targets: dict[int, int]
    controls: list[int]
    """Those from BRANCH on, by number."""
    stack: int
    """Registers that point to the stack: RSP, and RBP where it is the frame pointer."""
    pointer: int
    """Bytes of an address."""
    handed: dict[int, int] = {}
    """Of 32-bit code, by the address of a call, or of a jump out of the function: how far from where the stack
    pointer stood at the beginning the words lie that it hands over."""
    tables: dict[int, tuple[int, ...]] = {}
    """By the address of an indirect jump where its table leads to, as far as that is known."""
    endings: frozenset[int] = frozenset()
    """Addresses of what ends the program: UD2, calls, and jumps out of the function."""
    is_main: bool = False
    """Whether the program ends where it returns."""

    @property
    def pushed(self) -> int:
        """What stands for words on the stack among the registers of parameters."""
        return PUSHED if self.pointer == 4 else 0

    def inside(self, address: int) -> bool:
        """Whether the address lies within the function."""
        return bool(self.ips) and self.ips[0] <= address <= self.ips[-1]


_factory = iced.InstructionInfoFactory()
_FRAMES = {64: (b"\x48\x89\xe5", b"\x48\x8b\xec"), 32: (b"\x89\xe5", b"\x8b\xec")}
"""MOV RBP, RSP in both of its encodings: what functions with a frame pointer begin with. In others RBP is a register
like the rest."""
_cache: dict[int, dict[bytes | int, Fact]] = {32: {}, 64: {}}
"""By the mode, then by the encoding, or for a direct branch by its opcode alone: all of one opcode do the same."""


def facts(code: bytes, start: int, bits: int) -> Code:
    """The instructions of `code`, which begins at address `start`."""
    known = _cache[bits]
    if len(known) > _KEPT:
        known.clear()
    found = _read(code, start, bits)
    _redirect_queries(found.facts)
    framed = any(frame in code for frame in _FRAMES[bits])
    if framed:
        _leave_frame(found.facts)
    return Code(*found, RSP | RBP if framed else RSP, bits // 8)


def last(code: bytes, start: int, bits: int) -> Fact | None:
    """The last instruction of `code`, which begins at address `start`, that is no padding."""
    sizes = lengths(code, bits)
    at = sum(sizes)
    for size in reversed(sizes):
        at -= size
        fact = _known(code[at : at + size], start + at, bits)
        if not fact.idle:
            return fact
    return None


def returns(code: bytes, bits: int) -> bool:
    """Whether a plain RET is among the instructions of `code`, as in most that return."""
    at = 0
    for size in lengths(code, bits):
        if size == 1 and code[at] == _RET:
            return True
        at += size
    return False


def stopped(code: Code, before: Callable[[int], bool], ends: Callable[[int], bool]) -> Code:
    """`code` with its calls that never return, and what ends the program.

    `before` says whether what calls or jumps before an address never comes back, and `ends` whether that is because
    the program ends.
    """
    leading = (i for i, fact in enumerate(code.facts) if fact.kind in LEADING)
    final = [i for i in leading if before(code.ips[i] + code.facts[i].size)]
    traps = {code.ips[i] for i in code.controls if code.facts[i].kind == STOP}
    if not final:
        return replace(code, endings=frozenset(traps)) if traps else code
    endings = traps | {code.ips[i] for i in final if ends(code.ips[i] + code.facts[i].size)}
    numbers = [i for i in final if code.facts[i].kind == CALL]
    facts = list(code.facts)
    for i in numbers:
        facts[i] = replace(facts[i], kind=STOP, direct=0)
    sites = {code.ips[i] for i in numbers}
    targets = {ip: target for ip, target in code.targets.items() if ip not in sites}
    controls = sorted({*code.controls, *numbers})
    return replace(code, facts=facts, targets=targets, controls=controls, endings=frozenset(endings))


def located(code: Code, learnt: Mapping[int, tuple[int, int]]) -> Code:
    """`code` with LEA for what brings its own address into a register, as 32-bit code has to learn it.

    `learnt`: address of the instruction -> number of the register, and that address. Where the instruction is POP,
    the call before it, which leads there, does nothing else.
    """
    numbers = [i for i, ip in enumerate(code.ips) if ip in learnt]
    if not numbers:
        return code
    facts, targets = list(code.facts), dict(code.targets)
    for i in numbers:
        fact, ip = facts[i], code.ips[i]
        number, address = learnt[ip]
        own = Memory(True, 0, 0, 0, address - ip - fact.size, 1)
        facts[i] = replace(
            _NOTHING, kind=LEA, size=fact.size, written=_NUMBERED[number], loads=(own,), makes=_NUMBERED[number]
        )
        if targets.pop(ip, None) is None and i and targets.pop(code.ips[i - 1], None) == ip:
            facts[i - 1] = replace(_NOTHING, size=facts[i - 1].size)
    return replace(code, facts=facts, targets=targets)


class _Reading(NamedTuple):
    """The parts of Code that are read from bytes."""

    ips: list[int]
    facts: list[Fact]
    targets: dict[int, int]
    controls: list[int]


def _leave_frame(facts: list[Fact]) -> None:
    """Let nothing write to the frame pointer, which is set once and for all."""
    for i, fact in enumerate(facts):
        if fact.written & RBP:
            facts[i] = replace(fact, written=fact.written & ~RBP, makes=fact.makes & ~RBP)


def _redirect_queries(facts: list[Fact]) -> None:
    """Let CPUID between two equal exchanges of RBX, which position-independent code keeps, write the other register.

    So does <cpuid.h> of GCC and clang: seen one by one, the exchanges would be changes of RBX to a loop around them.
    """
    for i, fact in enumerate(facts):
        if fact.kind == CPUID and 0 < i < len(facts) - 1:
            before, behind = facts[i - 1], facts[i + 1]
            if before.kind == SWAP and before == behind and before.written & RBX:
                facts[i - 1] = facts[i + 1] = replace(before, kind=COMPUTE, read=0, written=0, plain=True)
                facts[i] = replace(fact, written=(fact.written | before.written) & ~RBX)


def _load_constants(code: bytes, bounds: list[int], facts: list[Fact], bits: int) -> None:
    """Let POP behind PUSH of a number be MOV of that: so compilers write it where size is all that counts (-Oz)."""
    at = code.find(_PUSH_BYTE)
    while at >= 0:
        i = bisect_left(bounds, at)
        pop = code[at + 2 : bounds[i + 2]] if i + 2 < len(bounds) and bounds[i : i + 2] == [at, at + 2] else b""
        if pop and 0x58 <= pop[-1] <= 0x5F and (len(pop) == 1 or (bits == 64 and pop[:-1] == b"\x41")):
            wide = bytes([0x48 | len(pop) - 1]) if bits == 64 else b""
            number = int.from_bytes(code[at + 1 : at + 2], "little", signed=True).to_bytes(4, "little", signed=True)
            move = wide + bytes([0xC7, 0xC0 | pop[-1] & 7]) + number
            facts[i] = replace(_NOTHING, size=2)
            facts[i + 1] = replace(_known(move, 0, bits), size=len(pop))
        at = code.find(_PUSH_BYTE, at + 1)


def _read(code: bytes, start: int, bits: int) -> _Reading:
    known = _cache[bits]
    bounds = list(accumulate(lengths(code, bits), initial=0))
    facts = [known.get(code[at:end]) or _known(code[at:end], start + at, bits) for at, end in pairwise(bounds)]
    _load_constants(code, bounds, facts, bits)
    targets, controls = {}, []
    for number in [i for i, fact in enumerate(facts) if fact.kind >= CALL]:
        fact, end = facts[number], bounds[number + 1]
        if fact.kind >= BRANCH:
            controls.append(number)
        if fact.direct:
            distance = int.from_bytes(code[end - fact.direct : end], "little", signed=True)
            targets[start + bounds[number]] = (start + end + distance) & ADDRESSES[bits]
    return _Reading([start + at for at in bounds[:-1]], facts, targets, controls)


def _known(encoding: bytes, ip: int, bits: int) -> Fact:
    """The fact of an instruction at `ip`, remembered by its encoding, or where it has a distance by its opcode."""
    known = _cache[bits]
    # One that the end of the code cuts short is no instruction, and must not pass for the whole one or the reverse.
    key: bytes | int = encoding
    if _DIRECT.get(encoding[0]) == len(encoding):
        key = encoding[0]
    elif len(encoding) == _CONDITIONAL_SIZE and encoding[0] == 0x0F and encoding[1:2] in _CONDITIONAL:
        key = encoding[0] << 8 | encoding[1]
    fact = known.get(key)
    if fact is None:
        instruction = next(iter(iced.Decoder(bits, encoding, ip=ip)))
        fact = _fact(instruction)
        if instruction.memory_base != _R.EIP:  # an address that is cut short, which no distance describes
            known[key] = fact
    return fact


def _bits(ins: iced.Instruction) -> list[int]:
    """The bit of each register, by its number."""
    return _BITS if ins.code_size == iced.CodeSize.CODE64 else _NARROW_BITS


def _is_idle(ins: iced.Instruction) -> bool:
    """Whether it leaves a register as it is: LEA, with which assemblers fill gaps of 32-bit code, and XCHG.

    XCHG of RBX with itself ends a request to Valgrind (valgrind.h), which Qt has where it asks the CPU.
    """
    if ins.mnemonic == _XCHG:
        return ins.op0_kind == ins.op1_kind == _REGISTER and ins.op0_register == ins.op1_register
    if ins.mnemonic != _M.LEA or ins.code_size == iced.CodeSize.CODE64:
        return False
    return ins.op0_register == ins.memory_base and not (ins.memory_index or ins.memory_displacement)


def _fact(ins: iced.Instruction) -> Fact:
    if _is_idle(ins):
        return replace(_NOTHING, size=len(ins))
    info, bits = _factory.info(ins), _bits(ins)
    read = written = 0
    for used in info.used_registers():
        bit, access = bits[used.register], used.access
        read |= bit if access in _READS else 0
        written |= bit if access in _WRITES else 0
    written &= ~RSP
    mnemonic, condition = ins.mnemonic, ins.condition_code
    kind = _MNEMONICS.get(mnemonic, _KINDS.get(ins.flow_control, COMPUTE))
    if mnemonic == _XCHG and _swaps(ins):
        kind = SWAP
    memory = [(used.access, _memory(ins, used)) for used in info.used_memory() if _is_followed(ins, used)]
    loads = tuple([m for access, m in memory if access in _READS]) if memory else ()
    moves = mnemonic == _MOV
    source = ins.op1_kind if moves and written and written & (written - 1) == 0 else -1
    reads_flags, writes_flags = ins.rflags_read != 0, ins.rflags_modified != 0
    brings = _NOUGHT if mnemonic in _CLEARING and _clears(ins) else None
    if source in _IMMEDIATES and source not in _ADDRESS_IMMEDIATES and ins.op0_kind == _REGISTER:
        brings = _number(ins)
    points = source in _ADDRESS_IMMEDIATES or (source == _REGISTER and bits[ins.op1_register] in (RSP, RBP))
    return Fact(
        kind=kind,
        size=len(ins),
        read=read,
        written=written,
        loads=(_address_taken(ins),) if kind == LEA else loads,
        stores=tuple([m for access, m in memory if access in _WRITES]) if memory else (),
        reads_flags=reads_flags,
        writes_flags=writes_flags,
        moves=moves,
        source=bits[ins.op1_register] if source == _REGISTER else 0,
        pointers=_pointers(ins, info, [m for _, m in memory]) if memory else 0,
        lowers=_lowered(ins) if kind in (COMPUTE, LEA) else 0,
        direct=_distance_bytes(ins) if kind >= CALL else 0,
        plain=kind == COMPUTE and not memory and not points,
        invalid=ins.is_invalid,
        comparison=_comparison(ins) if writes_flags and not written and len(memory) < 2 else (),
        condition=condition - 1,
        operation=_operation(ins, mnemonic) if mnemonic in _OPERATIONS or condition else None,
        brings=brings,
        uses=(0 if brings else read) | (FLAGS if reads_flags else 0),
        makes=(0 if condition else written) | (FLAGS if writes_flags else 0),
    )


def _lowered(ins: iced.Instruction) -> int:
    """How far the stack pointer moves down."""
    if ins.op_count == 2 and ins.op0_kind == _REGISTER and ins.op0_register in (_R.ESP, _R.RSP):
        if ins.mnemonic == _M.LEA and ins.memory_base == ins.op0_register and not ins.memory_index:
            return -_signed(ins, ins.memory_displacement, True)
        if ins.mnemonic in (_M.ADD, _SUB) and ins.op1_kind in _IMMEDIATES:
            number = _signed(ins, ins.immediate(1) & ADDRESSES[8 * _register_size(ins.op0_register)], True)
            return number if ins.mnemonic == _SUB else -number
    return -ins.stack_pointer_increment


def _number(ins: iced.Instruction) -> Options | None:
    """The number that MOV brings into a whole register."""
    size = _register_size(ins.op0_register)
    return constant(ins.immediate(1) & (1 << 8 * size) - 1) if size >= 4 else None


def _clears(ins: iced.Instruction) -> bool:
    """Whether both sources are one register: the last two operands of two or three."""
    last = ins.op_count - 1
    if ins.op_kind(last) != _REGISTER or ins.op_kind(last - 1) != _REGISTER:
        return False
    return ins.op_register(last) == ins.op_register(last - 1)


def _pointers(ins: iced.Instruction, info: iced.InstructionInfo, memory: list[Memory]) -> int:
    """Registers that are read as parts of addresses alone."""
    found = 0
    for operand in memory:
        found |= operand.base | operand.index
    for k in range(ins.op_count):
        if ins.op_kind(k) == _REGISTER and info.op_access(k) in _READS:
            found &= ~_bits(ins)[ins.op_register(k)]
    return found


def _swaps(ins: iced.Instruction) -> bool:
    """Whether XCHG exchanges two whole registers."""
    registers = ins.op0_register, ins.op1_register
    return all(r and _register_size(r) >= 4 for r in registers)


def _operation(ins: iced.Instruction, mnemonic: int) -> Operation | None:
    """None where it is a branch, or the third operand is a part of a register other than its low end."""
    if mnemonic == _M.CDQE:
        return Operation(mnemonic, 64, RAX, RAX, None, 0, 32, 0, False)
    if mnemonic == _PUSH:
        return _pushed(ins)
    count = ins.op_count
    if not count or ins.is_jcc_short_or_near:
        return None
    kinds = [ins.op_kind(k) for k in range(count)]
    registers = [ins.op_register(k) if kind == _REGISTER else 0 for k, kind in enumerate(kinds)]
    if not _HIGH.isdisjoint(registers[2:]):
        return None
    bits = _bits(ins)
    sizes = [8 * (_register_size(r) if r else _memory_size(ins.memory_size)) for r in registers[:2]]
    last = count - 1
    return Operation(
        mnemonic,
        sizes[0],
        bits[registers[0]],
        bits[registers[1]] if last else 0,
        ins.immediate(last) if kinds[last] in _IMMEDIATES else None,
        bits[registers[2]] if last > 1 else 0,
        sizes[1] if last else 0,
        _CARRIES.get(mnemonic, 0),
        registers[0] in _HIGH,
        last > 0 and registers[1] in _HIGH,
    )


def _pushed(ins: iced.Instruction) -> Operation:
    """PUSH is MOV to the stack."""
    size = 8 * abs(ins.stack_pointer_increment)
    number = ins.immediate(0) & (1 << size) - 1 if ins.op0_kind in _IMMEDIATES else None
    source = _bits(ins)[ins.op0_register] if ins.op0_kind == _REGISTER else 0
    return Operation(_MOV, size, 0, source, number, 0, size, 0, False)


def _comparison(ins: iced.Instruction) -> tuple[int | str, ...]:
    if ins.op_count != 2 or ins.mnemonic not in _COMPARISONS:
        return ()
    constant = ins.immediate(1) if ins.op1_kind not in (_REGISTER, iced.OpKind.MEMORY) else 0
    operands = ins.code, ins.op0_register, ins.op1_register
    with_itself = ins.op0_kind == ins.op1_kind == _REGISTER and ins.op0_register == ins.op1_register
    if ins.mnemonic == _M.CMP or (ins.mnemonic == _M.TEST and with_itself):
        return *operands, constant
    return *operands, constant, OF_BITS if ins.mnemonic == _M.TEST and constant else OF_ONE_BIT


def _distance_bytes(ins: iced.Instruction) -> int:
    if not ins.op_count or ins.op0_kind not in (iced.OpKind.NEAR_BRANCH32, iced.OpKind.NEAR_BRANCH64):
        return 0
    # LOOP and JRCXZ have no long form, and hardly ever stand in compiled code.
    short = ins.is_jcc_short or ins.is_jmp_short or ins.is_loop or ins.is_loopcc or ins.is_jcx_short
    return 1 if short else 4


def _memory(ins: iced.Instruction, used: iced.UsedMemory) -> Memory:
    relative, bits = ins.is_ip_rel_memory_operand, _bits(ins)
    return Memory(
        relative,
        bits[used.base],
        bits[used.index],
        used.scale,
        ins.ip_rel_memory_address - ins.next_ip if relative else _displacement(ins, used),
        max(_memory_size(used.memory_size), 1),
    )


def _address_taken(ins: iced.Instruction) -> Memory:
    relative, bits = ins.is_ip_rel_memory_operand, _bits(ins)
    displacement = ins.memory_displacement
    based = bool(ins.memory_base or ins.memory_index)
    displacement = displacement - ins.next_ip if relative else _signed(ins, displacement, based)
    return Memory(relative, bits[ins.memory_base], bits[ins.memory_index], ins.memory_index_scale, displacement, 1)


def _is_followed(ins: iced.Instruction, used: iced.UsedMemory) -> bool:
    """Whether it is known where an operand lies: of the segments with addresses of their own in the thread's alone."""
    return used.segment not in (_R.FS, _R.GS) or used.segment == _thread_segment(ins)


def _thread_segment(ins: iced.Instruction) -> int:
    return _R.FS if ins.code_size == iced.CodeSize.CODE64 else _R.GS


def _displacement(ins: iced.Instruction, used: iced.UsedMemory) -> int:
    of_thread = used.segment == _thread_segment(ins)
    based = used.base or used.index or of_thread
    return _signed(ins, used.displacement, bool(based)) + (THREAD if of_thread else 0)


def _signed(ins: iced.Instruction, displacement: int, based: bool) -> int:
    """A distance from what a register holds, or without one in 32-bit code an address."""
    if ins.code_size == iced.CodeSize.CODE64:
        return displacement - (1 << 64) if displacement >> 63 else displacement
    return displacement - (1 << 32) if based and displacement >> 31 else displacement
