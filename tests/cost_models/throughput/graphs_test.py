"""Graphs of blocks, one of them written by hand, and their encodings."""

from collections import Counter

import hypothesis
import numpy as np
from hypothesis import strategies as st

from compiler_opt.cost_models.throughput.graphs import (
    FIRST_MNEMONIC,
    EdgeKind,
    Node,
    NodeKind,
    encode_graphs,
)
from compiler_opt.cost_models.throughput.instructions import Decoder, Instruction
from compiler_opt.cost_models.throughput.ragged import Ragged
from compiler_opt.cost_models.throughput.sequences import encode_sequences, operand_tokens
from compiler_opt.cost_models.throughput.vocabulary import Vocabulary, learn_vocabulary
from tests.cost_models.throughput.reference_graph import block_graph

LOOP = bytes.fromhex("480304d7ffc24885c075d0")
"""addq (%rdi,%rdx,8), %rax; incl %edx; testq %rax, %rax; jne"""


def decoded(code: bytes) -> list[Instruction]:
    found = Decoder().decode(code)
    assert found is not None
    return found


def test_graph_by_hand() -> None:
    graph = block_graph(decoded(LOOP))
    assert graph.nodes == (
        Node(NodeKind.MNEMONIC, "ADD_R64_RM64:M", "ADD"),  # 0
        Node(NodeKind.REGISTER, "RAX"),  # 1, before the block
        Node(NodeKind.ADDRESS),  # 2
        Node(NodeKind.REGISTER, "RDI"),  # 3
        Node(NodeKind.REGISTER, "RDX"),  # 4, before the block
        Node(NodeKind.MEMORY),  # 5
        Node(NodeKind.MNEMONIC, "INC_RM32", "INC"),  # 6
        Node(NodeKind.MNEMONIC, "TEST_RM64_R64", "TEST"),  # 7
        Node(NodeKind.REGISTER, "RAX"),  # 8, of add
        Node(NodeKind.MNEMONIC, "JNE_REL8_64", "JNE"),  # 9
        Node(NodeKind.REGISTER, "RFLAGS"),  # 10, of test
        Node(NodeKind.REGISTER, "RDX"),  # 11, of inc, for the next run
    )
    assert graph.edges == (
        (1, 0, EdgeKind.INPUT),
        (3, 2, EdgeKind.BASE),
        (4, 2, EdgeKind.INDEX),
        (2, 0, EdgeKind.INPUT),
        (5, 0, EdgeKind.INPUT),
        (0, 6, EdgeKind.STRUCTURAL),
        (4, 6, EdgeKind.INPUT),
        (6, 7, EdgeKind.STRUCTURAL),
        (0, 8, EdgeKind.OUTPUT),
        (8, 7, EdgeKind.INPUT),
        (7, 9, EdgeKind.STRUCTURAL),
        (7, 10, EdgeKind.OUTPUT),
        (10, 9, EdgeKind.INPUT),
        (8, 1, EdgeKind.LOOP_CARRIED),
        (6, 11, EdgeKind.OUTPUT),
        (11, 4, EdgeKind.LOOP_CARRIED),
    )


def test_prefixes_stores_immediates_and_segments() -> None:
    # lock addl $1, 4(%rdi); movq %rax, %fs:8
    graph = block_graph(decoded(bytes.fromhex("f083470401644889042508000000")))
    kinds = Counter((node.kind, node.name) for node in graph.nodes if node.kind is not NodeKind.MNEMONIC)
    assert kinds == {
        (NodeKind.PREFIX, "LOCK"): 1,
        (NodeKind.ADDRESS, ""): 2,
        (NodeKind.REGISTER, "RDI"): 1,
        (NodeKind.IMMEDIATE, ""): 3,  # two displacements and the constant
        (NodeKind.MEMORY, ""): 3,  # one is read and written
        (NodeKind.REGISTER, "RAX"): 1,
        (NodeKind.REGISTER, "FS"): 1,
    }
    edges = Counter(kind for _, _, kind in graph.edges)
    assert edges[EdgeKind.DISPLACEMENT] == 2 and edges[EdgeKind.SEGMENT] == 1 and edges[EdgeKind.OUTPUT] == 2


def test_encodings_are_the_graphs_and_sequences_again() -> None:
    blocks = [decoded(LOOP), decoded(b"\x90"), decoded(LOOP + LOOP)]
    vocabulary = learn_vocabulary(blocks, ["RAX", "RDX", "read:RAX", "load"], min_count=2)
    assert vocabulary.mnemonics == ("ADD", "INC", "JNE", "TEST") and "NOPD" not in vocabulary.forms
    numbers = vocabulary.numbers()
    encoded = encode_graphs(blocks, numbers)
    order = np.array([2, 0, 1])
    for chosen, block in zip(range(3), (blocks[2], blocks[0], blocks[1]), strict=True):
        graph = block_graph(block)
        row = encoded.take(order).take(np.array([chosen]))
        names = ["", *vocabulary.forms, "", *vocabulary.operands]
        for node, type_, name in zip(graph.nodes, row.nodes.values["type"], row.nodes.values["name"], strict=True):
            if node.kind is NodeKind.MNEMONIC:
                assert ["", *vocabulary.mnemonics][type_ - FIRST_MNEMONIC] in (node.mnemonic, "")
            else:
                assert type_ == node.kind
            assert names[name] == (node.name if node.name in names else "")
        edges = (row.edges.values[name].tolist() for name in ("sender", "receiver", "kind"))
        assert sorted(zip(*edges, strict=True)) == sorted(graph.edges)
    sequences = encode_sequences(blocks, numbers)
    assert sequences.sizes.tolist() == [4, 1, 8]
    first = sequences.take(np.array([0]))
    tokens = [(token, place) for place, each in enumerate(blocks[0]) for token in operand_tokens(each)]
    found = [
        (["", *vocabulary.operands][token], place)
        for token, place in zip(first.operands.values["token"], first.operands.values["instruction"], strict=True)
    ]
    assert found == [(token if token in vocabulary.operands else "", place) for token, place in tokens]


PIECES = [
    bytes.fromhex(code)
    for code in (
        "480304d7",  # addq (%rdi,%rdx,8), %rax
        "ffc2",  # incl %edx
        "4885c0",  # testq %rax, %rax
        "0f94c0",  # sete %al
        "4889442408",  # movq %rax, 8(%rsp)
        "488b5310",  # movq 16(%rbx), %rdx
        "f083470401",  # lock addl $1, 4(%rdi)
        "64488b042528000000",  # movq %fs:40, %rax
        "48f7f1",  # divq %rcx
        "f3a4",  # rep movsb
        "f20f58c1",  # addsd %xmm1, %xmm0
        "50",  # pushq %rax
        "31d2",  # xorl %edx, %edx
        "75d0",  # jne
        "90",  # nop
    )
]


@hypothesis.example([[bytes.fromhex("90")]])
@hypothesis.example([])
@hypothesis.given(st.lists(st.lists(st.sampled_from(PIECES), max_size=12), max_size=5))
def test_graphs_of_all_blocks_at_once_are_those_of_each(codes: list[list[bytes]]) -> None:
    decoder = Decoder()
    blocks = [decoder.decode(b"".join(code)) or [] for code in codes]
    operands = sorted({node.name for block in blocks for node in block_graph(block).nodes if not node.mnemonic})
    vocabulary = learn_vocabulary(blocks, operands, min_count=1)
    encoded = encode_graphs(blocks, vocabulary.numbers())
    names = ["", *vocabulary.forms, "", *vocabulary.operands]
    assert len(encoded.sizes) == len(blocks)
    for number, block in enumerate(blocks):
        graph, row = block_graph(block), encoded.take(np.array([number]))
        assert [names[name] for name in row.nodes.values["name"]] == [node.name for node in graph.nodes]
        columns = (row.edges.values[name].tolist() for name in ("sender", "receiver", "kind"))
        assert sorted(zip(*columns, strict=True)) == sorted(graph.edges)


def test_new_names_have_the_number_for_unknown_ones() -> None:
    numbers = Vocabulary((), (), ()).numbers()
    encoded = encode_graphs([decoded(LOOP)], numbers)
    assert set(encoded.nodes.values["name"].tolist()) == {0, 1}
    assert set(encode_sequences([decoded(LOOP)], numbers).operands.values["token"].tolist()) == {0}


def test_ragged_rows_are_joined_as_lists_would_be() -> None:
    parts: list[list[list[int]]] = [[[1, 2], [], [3]], [[4], [5, 6], []], [[], [], []]]
    joined = Ragged.joined(
        *(
            Ragged.of_lengths([len(row) for row in rows], {"x": np.array([x for row in rows for x in row], np.int32)})
            for rows in parts
        )
    )
    assert joined.values["x"].tolist() == [1, 2, 4, 5, 6, 3]
    assert joined.lengths.tolist() == [3, 2, 1]


def test_ragged_rows_are_taken_as_lists_would_be() -> None:
    generator = np.random.default_rng(0)
    rows = [generator.integers(0, 9, length) for length in (3, 0, 5, 1, 0)]
    ragged = Ragged.of_lengths([len(row) for row in rows], {"x": np.concatenate(rows)})
    for chosen in ([], [1], [4, 2, 0, 2], [0, 1, 2, 3, 4]):
        taken = ragged.take(np.array(chosen, np.int64))
        assert taken.values["x"].tolist() == [value for row in chosen for value in rows[row].tolist()]
        assert taken.lengths.tolist() == [len(rows[row]) for row in chosen]
        assert taken.owners.tolist() == [number for number, row in enumerate(chosen) for _ in rows[row]]
