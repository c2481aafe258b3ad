import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.errors import ProtocolError, ToolchainError
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.measure import sampling
from compiler_opt.measure.sampling import Samples, build_id, check_sampling, parse, read_script, run_sampled
from tests.measure.running import PROGRAM, built

OURS, OTHER = "0f" * 20, "a1" * 20
TEXT = f"""\
   17 PERF_RECORD_MMAP2 17/17: [0x5000(0x1000) @ 0x2000 <{OURS}>]: r-xp /home/me/bench
   17 PERF_RECORD_MMAP2 17/17: [0x9000(0x1000) @ 0 <{OTHER}>]: r-xp /lib/libc.so.6
   17 PERF_RECORD_MMAP2 17/17: [0xb000(0x2000) @ 0 00:00 0 0]: r-xp [vdso]
   17      50000              5010
   17      50000              5010
   17      50000              5fff
   17      50000              6000
   17      50000              9010
   18      50000              5010
"""


def test_counts_samples_by_offset_in_the_file() -> None:
    # 0x5010 is 0x10 after where the file's 0x2000 is; 0x6000 is behind the mapping; process 18 is another program.
    assert parse(TEXT.encode(), OURS) == Samples({0x2010: 2, 0x2FFF: 1}, 2, 50_000)


def test_adds_up_runs() -> None:
    found = parse(TEXT.encode(), OURS)
    assert sampling.NO_SAMPLES + found == found
    assert found + found == Samples({0x2010: 4, 0x2FFF: 2}, 4, 50_000)


def test_reads_as_far_as_lines_are_whole() -> None:
    whole = TEXT[: TEXT.index("   17      50000              6000")]
    for text in (whole, whole + "   17      50", whole + "   17 PERF_RECORD_MMA"):
        assert parse(text.encode(), OURS) == Samples({0x2010: 2, 0x2FFF: 1}, 0, 50_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"expected samples of the program with the build id {OURS}, found no build ids; record it"),
        (TEXT.replace(OURS, "b2" * 20), f"build id {OURS}, found {'b2' * 20} of /home/me/bench; record it with perf"),
        (TEXT.replace(f"<{OURS}>", "08:01 12 0").replace(f"<{OTHER}>", "08:01 13 0"), "found no build ids"),
        (TEXT + "bench 17 1.0: cycles\n", "line 10: expected a process, a period and an address, found 'bench 17"),
        (TEXT + "   17      40000              5010\n", "expected samples with one period, found 2 periods"),
        (TEXT[: TEXT.index("   17      50000")], "expected samples with one period, found 0 periods"),
    ],
)
def test_refuses_what_is_no_profile_of_the_program(text: str, message: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse(text.encode(), OURS, "bench.txt")
    assert message in str(caught.value) and str(caught.value).startswith("bench.txt: ")
    assert "\n" not in str(caught.value)


@given(st.binary() | st.text(alphabet="0123456789abcdef PERF_RECORD_MMAP2:[]()@<>/x-\n").map(str.encode))
def test_never_fails_otherwise(content: bytes) -> None:
    for text in (content, TEXT.encode() + content):
        try:
            parse(text, OURS)
        except ProtocolError:
            continue


def test_knows_a_program_by_its_build_id(tmp_path: Path) -> None:
    one = build_id(built(tmp_path, PROGRAM, "-Wl,--build-id", name="one"))
    assert len(one) == 40
    assert one != build_id(built(tmp_path, PROGRAM.replace("31", "33"), "-Wl,--build-id", name="two"))
    with pytest.raises(ProtocolError, match=r"three: expected a build id, .*; link it with -Wl,--build-id"):
        build_id(built(tmp_path, PROGRAM, "-Wl,--build-id=none", name="three"))


def test_the_missing_file_is_named(tmp_path: Path) -> None:
    program = built(tmp_path, PROGRAM, "-Wl,--build-id")
    with pytest.raises(ProtocolError, match=r"no\.txt: cannot be read: No such file"):
        read_script(tmp_path / "no.txt", program)


@pytest.mark.ci
def test_most_time_is_in_the_hot_function(tmp_path: Path) -> None:
    program = built(tmp_path, PROGRAM, "-Wl,--build-id")
    try:
        check_sampling()
    except ToolchainError as error:
        # It is installed, but some containers do not allow it.
        assert "perf: cannot sample here" in str(error)
        return
    run = run_sampled([str(program), "3000000"], program)
    assert run.result.ok and run.samples is not None
    file = ElfFile.read(program)
    (text,) = file.sections_named(".text")
    symbols, _ = file.symbols(file.sections_named(".symtab")[0])
    names = file.strings(int(file.sections["link"][file.sections_named(".symtab")[0]]), symbols["name"])
    hot = symbols[names.index("hot")]
    start = int(hot["value"]) - int(file.sections["addr"][text]) + int(file.sections["offset"][text])
    within = sum(number for offset, number in run.samples.offsets.items() if start <= offset < start + int(hot["size"]))
    everything = sum(run.samples.offsets.values()) + run.samples.elsewhere
    assert everything > 50 and within > everything / 2
    assert run_sampled([str(program), "-1"], program).samples is None
    # Short runs, several under one perf; the process that starts them does not count.
    repeated = run_sampled([str(program), "300000"], program, repetitions=5)
    once = run_sampled([str(program), "300000"], program)
    assert repeated.result.ok and repeated.samples is not None and once.samples is not None
    assert repeated.result.stdout == 5 * once.result.stdout
    assert sum(repeated.samples.offsets.values()) > 2 * sum(once.samples.offsets.values())
    failed = run_sampled([str(program), "-1"], program, repetitions=3)
    assert failed.samples is None and "3" in failed.result.describe()


def test_names_the_package_of_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("perf", path=os.environ["PATH"]) is None
    with pytest.raises(ToolchainError, match="perf: not found; install the package linux-perf"):
        check_sampling()
