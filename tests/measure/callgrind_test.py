import dataclasses
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.errors import ProtocolError, ToolchainError
from compiler_opt.measure import callgrind
from compiler_opt.measure.callgrind import Calls, Counts, Function, Profile, parse, run_profiled
from tests.measure.running import PROGRAM, built

EVENTS = "Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw Bc Bcm Bi Bim"
SMALL = f"""# callgrind format
version: 1
cmd: ./bench
positions: line
events: {EVENTS}

ob=/bench
fl=/bench.c
fn=main
3 100 10 5 1 2 3 0 1 1 20 4 2 1
fi=/other.h
7 50
cob=/libc.so
cfi=???
cfn=puts
calls=2 0
3 70 7
cfn=walk
calls=1 9
3 60

fn=walk
9 20
cfn=walk'2
calls=4 9
9 40
fn=walk'2
9 40

ob=/libc.so
fn=puts
0 70 7

totals: 280 17 5 1 2 3 0 1 1 20 4 2 1
"""


def test_reads_own_counts_and_calls() -> None:
    profile = parse(SMALL.encode())
    main, walk, puts = Function("/bench", "main"), Function("/bench", "walk"), Function("/libc.so", "puts")
    own = Counts(
        100 + 50,
        reads=10,
        writes=5,
        l1_misses=1 + 2 + 3,
        ll_misses=0 + 1 + 1,
        mispredicts=4 + 1,
        instruction_misses=1,
        indirect_mispredicts=1,
    )
    assert profile.functions == {main: own, walk: Counts(20 + 40), puts: Counts(70, reads=7)}
    assert profile.calls == {
        (main, puts): Calls(2, Counts(70, reads=7)),
        (main, walk): Calls(1, Counts(60)),
        (walk, walk): Calls(4, Counts(40)),
    }
    assert profile.total.instructions == 280
    assert own.cycles == 150 + 10 * (5 + 6) + 100 * 2
    assert own + Counts(1, reads=2, mispredicts=3) - Counts(1, reads=2, mispredicts=3) == own


def test_profiles_add_up() -> None:
    profile = parse(SMALL.encode())
    twice = profile + profile
    main, puts = Function("/bench", "main"), Function("/libc.so", "puts")
    assert twice.total == profile.total + profile.total
    assert twice.functions[main].instructions == 300
    assert twice.calls[main, puts].number == 4
    assert profile + callgrind.NOTHING == profile


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# callgrind format", "callgrind", "line 1: expected `# callgrind format`"),
        (f"events: {EVENTS}", f"events: {EVENTS}\nevents: Ir", "expected `events:` once"),
        (f"events: {EVENTS}", "events: Dr Dw", "one of them Ir"),
        (f"events: {EVENTS}", "", "before any counts"),
        ("7 50\n", "7 51\n", "add up to 280 Ir, found 281"),
        ("7 50\n", "7 5x\n", "expected counts"),
        ("7 50\n", "7 " + 14 * "1 " + "\n", "at most 13 counts"),
        ("7 50\n", "7 -50\n", "expected counts"),
        ("fn=main\n", "", "before any counts"),
        ("cfn=puts\n", "", "expected a callee before"),
        ("calls=2 0\n3 70 7\n", "calls=2 0\nfn=x\n", "a cost after"),
        ("calls=2 0\n", "calls=\n", "a number in"),
        ("cob=/libc.so\n", "object /libc.so\n", "found 'object /libc.so'"),
        ("totals:", "total:", "found 'total: "),
        ("totals: 280 17 5 1 2 3 0 1 1 20 4 2 1\n", "", "truncated"),
    ],
)
def test_refuses_what_is_wrong(old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(ProtocolError, match=r"bench: not a profile of callgrind: ") as error:
        parse(SMALL.replace(old, new, 1).encode(), "bench")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@given(st.integers(0, len(SMALL) - 2))
def test_refuses_every_truncated_profile(length: int) -> None:
    with pytest.raises(ProtocolError):
        parse(SMALL.encode()[:length])


@given(st.binary(max_size=200), st.integers(0, len(SMALL)), st.integers(0, 60))
def test_nothing_but_its_own_error(noise: bytes, start: int, dropped: int) -> None:
    content = SMALL.encode()
    try:
        parse(content[:start] + noise + content[start + dropped :])
    except ProtocolError as error:
        assert "\n" not in str(error)


names = st.text("abcdefghijklmnop_:$.@ ()?", min_size=1, max_size=12)
functions = st.builds(Function, names.map("/{}".format), names)
counts = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=13)


@pytest.mark.ci
@given(
    st.dictionaries(functions, st.lists(counts, min_size=1, max_size=3), min_size=1, max_size=6),
    st.lists(st.tuples(functions, functions, st.integers(0, 1 << 30), counts), max_size=6),
)
def test_reads_what_it_would_write(
    own: dict[Function, list[list[int]]], calls: list[tuple[Function, Function, int, list[int]]]
) -> None:
    """Against the obvious implementation: sums of instructions by function and by call."""
    lines = ["# callgrind format", f"events: {EVENTS}"]
    expected: dict[tuple[Function, Function], list[int]] = {}
    for function, costs in own.items():
        lines += [f"ob={function.object}", f"fn={function.symbol}"]
        lines += [f"{number} {' '.join(map(str, cost))}" for number, cost in enumerate(costs)]
        for caller, callee, number, cost in calls:
            if caller == function:
                lines += [f"cob={callee.object}", f"cfn={callee.symbol}", f"calls={number} 1"]
                lines += [f"1 {' '.join(map(str, cost))}"]
                known = expected.setdefault((caller, callee), [0, 0])
                known[0] += number
                known[1] += cost[0]
    columns = [cost + [0] * (13 - len(cost)) for costs in own.values() for cost in costs]
    lines += ["totals: " + " ".join(str(sum(column)) for column in zip(*columns, strict=True)), ""]
    profile = parse("\n".join(lines).encode())
    assert {f: c.instructions for f, c in profile.functions.items()} == {
        function: sum(cost[0] for cost in costs) for function, costs in own.items()
    }
    found = {edge: [each.number, each.inclusive.instructions] for edge, each in profile.calls.items()}
    assert found == expected


@pytest.mark.ci
def test_counts_a_real_program(tmp_path: Path) -> None:
    program = built(tmp_path, PROGRAM)
    runs = [run_profiled([str(program), "1000"], scratch=tmp_path) for _ in range(2)]
    profile = runs[0].profile
    assert profile is not None
    assert profile == runs[1].profile
    assert runs[0].result.stdout.startswith(b"1000 ")
    own = {f.symbol: c.instructions for f, c in profile.functions.items() if f.object == str(program)}
    assert own["hot"] > 100 * own["cold"] > 0
    without = run_profiled([str(program), "1000"], scratch=tmp_path, simulate=False).profile
    assert without is not None
    assert without.functions[Function(str(program), "hot")] == Counts(own["hot"])
    calls = {(a.symbol, b.symbol): each.number for (a, b), each in profile.calls.items()}
    assert calls["main", "hot"] == 1000
    assert calls["main", "cold"] == 1
    assert sum(counts.instructions for counts in profile.functions.values()) == profile.total.instructions
    assert not list(tmp_path.glob("callgrind*"))


def test_a_program_that_fails_has_no_profile(tmp_path: Path) -> None:
    program = built(tmp_path, PROGRAM)
    run = run_profiled([str(program), "-1"], scratch=tmp_path)
    assert run.profile is None
    assert run.result.returncode == 3
    assert not list(tmp_path.glob("callgrind*"))


def test_valgrind_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shutil.which("valgrind"), "the tests need valgrind; ./run_tests.sh installs it"
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ToolchainError, match="install the package valgrind"):
        callgrind.valgrind()


def test_an_empty_profile_is_its_own_sum() -> None:
    assert dataclasses.astuple(Profile(Counts(), {}, {}).total) == (0,) * 8


def test_reads_counts_by_address() -> None:
    text = """# callgrind format
positions: instr line
events: Ir I1mr

ob=/bench
fn=main
0x16d0 3 2 1
0x16d4 3 2
cob=/libc.so
cfn=puts
calls=2 0x16d0 0
0x16d4 3 14
fn=walk
0x16d0 9 5

ob=/libc.so
fn=puts
0x16d0 0 14

totals: 23 1
"""
    # One address in two functions is one instruction: code that was folded. Calls are no own counts.
    assert parse(text.encode()).instructions == {
        ("/bench", 0x16D0): Counts(2 + 5, l1_misses=1, instruction_misses=1),
        ("/bench", 0x16D4): Counts(2),
        ("/libc.so", 0x16D0): Counts(14),
    }
    for wrong in (text.replace("0x16d4 3 2", "16d4 3 2"), text.replace("instr line", "instr")):
        with pytest.raises(ProtocolError, match=r"line \d+: expected"):
            parse(wrong.encode())
    assert parse(SMALL.encode()).instructions == {}


def test_reads_jumps_by_address() -> None:
    text = """# callgrind format
positions: instr line
events: Ir

ob=/bench
fn=main
0x10 3 9
jcnd=4/9 0x30 5
0x10 3
0x14 3 5
jfi=/other.h
jfn=walk
jump=5 0x40 7
0x14 3
cfn=walk
calls=2 0x40 7
0x18 3 14
cob=/libc.so
cfn=puts
calls=2 0x40 0
0x18 3 14
fn=walk
jump=1 0x30 5
0x10 3

totals: 14
"""
    profile = parse(text.encode())
    # Two functions may have the same code; calls into other object files are left out.
    expected = {("/bench", 0x10, 0x30): 4 + 1, ("/bench", 0x14, 0x40): 5, ("/bench", 0x18, 0x40): 2}
    assert profile.jumps == expected
    assert profile.of_object("/bench") == (
        {0x10: Counts(9), 0x14: Counts(5)},
        {key[1:]: n for key, n in expected.items()},
    )
    assert profile.of_object("/libc.so") == ({}, {})
    assert (profile + profile).jumps == {key: 2 * number for key, number in expected.items()}
    for wrong in ("jcnd=4/9\n", "jcnd=x/9 0x30 5\n", "jcnd=4/9 30 5\n", "jcnd=4/9 0x30 5\n\n"):
        with pytest.raises(ProtocolError, match=r"line \d+: expected"):
            parse(text.replace("jcnd=4/9 0x30 5\n", wrong).encode())
