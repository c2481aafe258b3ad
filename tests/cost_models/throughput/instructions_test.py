"""What is decoded of machine code, against what LLVM's disassembler prints of it."""

import pytest

from compiler_opt.cost_models.throughput.instructions import Decoder, Instruction, Memory

EXPECTED = {
    # addl (%rax,%rbx,4), %ecx
    "030c98": Instruction(
        "ADD",
        "ADD_R32_RM32",
        has_memory_operand=True,
        reads=("RCX",),
        writes=("RCX", "RFLAGS"),
        memory=(Memory("RAX", "RBX", is_read=True),),
    ),
    # movq %rax, 8(%rax): what it stores is also its address
    "48894008": Instruction(
        "MOV",
        "MOV_RM64_R64",
        has_memory_operand=True,
        reads=("RAX",),
        memory=(Memory("RAX", has_displacement=True, is_written=True),),
    ),
    # movq (%rax), %rax: read for the address only
    "488b00": Instruction(
        "MOV", "MOV_R64_RM64", has_memory_operand=True, writes=("RAX",), memory=(Memory("RAX", is_read=True),)
    ),
    # leaq 1(%rdi,%rdi), %rax
    "488d443f01": Instruction(
        "LEA",
        "LEA_R64_M",
        has_memory_operand=True,
        writes=("RAX",),
        memory=(Memory("RDI", "RDI", has_displacement=True),),
    ),
    # movsd (%rip), %xmm0, to be relocated
    "f20f100500000000": Instruction(
        "MOVSD",
        "MOVSD_XMM_XMMM64",
        has_memory_operand=True,
        writes=("ZMM0",),
        memory=(Memory(has_displacement=True, is_read=True),),
    ),
    # movq %fs:40, %rax
    "64488b042528000000": Instruction(
        "MOV",
        "MOV_R64_RM64",
        has_memory_operand=True,
        writes=("RAX",),
        memory=(Memory(segment="FS", has_displacement=True, is_read=True),),
    ),
    # lock cmpxchgq %rcx, (%rdi)
    "f0480fb10f": Instruction(
        "CMPXCHG",
        "CMPXCHG_RM64_R64",
        ("LOCK",),
        has_memory_operand=True,
        reads=("RCX", "RAX"),
        writes=("RAX", "RFLAGS"),
        memory=(Memory("RDI", is_read=True, is_written=True),),
    ),
    # pushq %rbx; cmpl $5, %edi; jne; xorl %eax, %eax, which depends on nothing
    "53": Instruction("PUSH", "PUSH_R64", reads=("RBX", "RSP"), writes=("RSP",)),
    "83ff05": Instruction("CMP", "CMP_RM32_IMM8", reads=("RDI",), writes=("RFLAGS",), num_immediates=1),
    "75d7": Instruction("JNE", "JNE_REL8_64", reads=("RFLAGS",)),
    "31c0": Instruction("XOR", "XOR_RM32_R32", writes=("RAX", "RFLAGS")),
}


@pytest.mark.parametrize("code", EXPECTED)
def test_instructions(code: str) -> None:
    decoder = Decoder()
    for _ in range(2):
        assert decoder.decode(bytes.fromhex(code)) == [EXPECTED[code]]
    every = b"".join(map(bytes.fromhex, EXPECTED))
    assert decoder.decode(every) == [*EXPECTED.values()]


def test_branch_targets_are_no_part_of_a_block() -> None:
    decoder = Decoder()
    # incq %rax; je (1 byte); call and jmp (4 bytes); an immediate and a displacement stay.
    given = "48ffc0 74d7 e811223344 e911223344 83ff05 48894008"
    wanted = "48ffc0 7400 e800000000 e900000000 83ff05 48894008"
    assert decoder.canonical(bytes.fromhex(given)) == bytes.fromhex(wanted)


@pytest.mark.parametrize("code", ["06", "9006", "90480f", "e80000", ""])
def test_what_is_no_sequence_of_instructions(code: str) -> None:
    decoder = Decoder()
    expected = None if code else b""
    assert decoder.canonical(bytes.fromhex(code)) == expected
    assert decoder.decode(bytes.fromhex(code)) == (None if code else [])


def test_displacements_differ_but_not_what_an_instruction_is() -> None:
    decoder = Decoder()
    # movq 8(%rdi), %rax with a byte and four bytes, then without; from %rip; movq 8(%rsi), %rax; movl $8, 8(%rdi)
    codes = ("488b4708", "488b4710", "488b8708000000", "488b07", "488b0508000000", "488b4608", "c7470808000000")
    for code in codes:
        # As a decoder that has seen nothing else.
        assert decoder.decode(bytes.fromhex(code)) == Decoder().decode(bytes.fromhex(code))
    one, other, *_ = (decoder.decode(bytes.fromhex(code)) for code in codes)
    assert one and other and one[0] is other[0]
