"""Registers carry much between functions that is meant for nobody."""

from imgcheck.binaries.isa.x86.facts import ARGUMENTS, RAX, facts
from imgcheck.binaries.isa.x86.parameters import parameters, takes_result

RDI, RSI, RDX, *_ = ARGUMENTS


def taken(code: str) -> int:
    return parameters(facts(bytes.fromhex(code), 0x1000, 64)).read


def test_a_register_that_is_read_first_is_a_parameter() -> None:
    assert taken("89f8 01f0 c3") == RDI | RSI  # mov eax, edi; add eax, esi; ret


def test_a_register_that_is_written_first_is_none() -> None:
    assert taken("bf05000000 89f8 31d2 89d0 c3") == 0  # mov edi, 5; mov eax, edi; xor edx, edx; mov eax, edx; ret


def test_a_register_written_on_one_way_alone_is_a_parameter_on_the_other() -> None:
    # test edi, edi; je +7; mov edx, 5; jmp +0; mov eax, edx; ret
    assert taken("85ff 7407 ba05000000 eb00 89d0 c3") == RDI | RDX


def test_padding_leads_nowhere() -> None:
    assert taken("31d2 eb03 0f1f00 89d0 c3") == 0  # xor edx, edx; jmp +3; nop; mov eax, edx; ret


def test_what_later_code_alone_jumps_back_to_gets_what_that_has_left() -> None:
    # test edi, edi; js +8; je +6; ret; mov eax, edx; ret; nop; nop; xor edx, edx; jmp -9
    assert taken("85ff 7808 7406 c3 89d0 c3 9090 31d2 ebf7") == RDI
    # with mov edi, edi instead of xor: what the caller has left in EDX
    assert taken("85ff 7808 7406 c3 89d0 c3 9090 89ff ebf7") == RDI | RDX


def test_a_call_leaves_nothing_in_the_registers_of_parameters_but_may_take_them_itself() -> None:
    found = parameters(facts(bytes.fromhex("e8fb0f0000 89d0 c3"), 0x1000, 64))  # call 0x2000; mov eax, edx; ret
    assert found.read == 0
    assert found.passed == {0x1005: sum(ARGUMENTS)}


def result_taken(code: str, registers: int = RAX) -> bool:
    return takes_result(facts(bytes.fromhex(code), 0x1000, 64), registers)


def test_the_result_of_a_call_is_taken_where_it_is_read_or_handed_up() -> None:
    assert result_taken("e8fb0f0000 85c0 c3")  # call; test eax, eax; ret
    assert result_taken("e8fb0f0000 c3")  # call; ret
    assert result_taken("e9fb0f0000")  # jmp
    assert result_taken("e8fb0f0000 31c0 89d7 c3", RAX | RDX)  # call; xor eax, eax; mov edi, edx; ret


def test_the_result_of_a_call_is_not_taken_where_it_is_overwritten() -> None:
    assert not result_taken("e8fb0f0000 31c0 c3")  # call; xor eax, eax; ret
    assert not result_taken("e8fb0f0000 31c0 89d7 c3")  # call; xor eax, eax; mov edi, edx; ret
    assert not result_taken("e8fb0f0000 89df e8f40f0000 c3")  # call; mov edi, ebx; call; ret
