"""Compiles random programs plainly and by mlgo-clang with a policy, runs both, and compares what they print.

    python -m benchmarks.csmith --programs=2000 --clang_paths=clang-22,clang-19
    python -m benchmarks.csmith --programs=500 --target_triple=aarch64-linux-gnu --emulator=qemu-aarch64

The programs are csmith's (Debian's packages csmith and libcsmith-dev), which have no undefined behaviour and print a
checksum of their variables. The policy decides at all of --levels, with the --options of each level;
`--policy_path=none` is for options alone, and --added for mlgo-clang alone. Programs run in a sandbox with limits on
time and memory. Those that do not end in time with plain clang, or crash, say nothing: they loop for ever, which
compilers may take to be impossible. They are counted apart. Those for another target are linked statically, and run by
an emulator such as Debian's qemu-user.

--output_dir keeps a record of each comparison, so that the same command continues where an earlier one ended, and the
source of each program that fails. Exit status: 1 if a program prints something else, runs too long, or is not compiled
with the policy.
"""

import concurrent.futures
import dataclasses
import shlex
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from benchmarks.deployments import policy_requests
from compiler_opt.corpus.ready_made.cross_compiling import Target
from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.kept_results import RecordFile, check_conditions
from compiler_opt.llvm import processes
from compiler_opt.llvm.options_plugin import OPTIONS
from compiler_opt.llvm.processes import ProcessResult
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.spawn import DEFAULT_FILE_BYTES, DEFAULT_MEMORY_BYTES
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.pass_options.sets import architecture_of
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.options_flag import OptionsFlag

_PROGRAMS = flags.DEFINE_integer("programs", 2000, "Programs to generate.", 1)
_LEVELS = flags.DEFINE_list("levels", "Oz,O2", "Optimisation levels.")
_CLANG_PATHS = flags.DEFINE_list("clang_paths", "clang-22", "The compilers.")
_POLICY_PATH = shared_flags.policy(
    "policy_path", "The policy; by default the one that ships and suits the compilers; `none` for none."
)
_OPTIONS = OptionsFlag("Options of LLVM's passes that are deployed, too: {forms}.", has_trials=True)
_ADDED = flags.DEFINE_string("added", "", "Further options of mlgo-clang alone, such as '-mllvm -disable-lsr'.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", "csmith", "Folder for records, and for programs that fail.")
_TARGET_TRIPLE = flags.DEFINE_string("target_triple", None, "The programs' target; by default the compilers' own.")
_EMULATOR = flags.DEFINE_string("emulator", None, "A program that runs those of --target_triple, such as qemu-aarch64.")
_INCLUDE = flags.DEFINE_string("csmith_include", "/usr/include/csmith", "Folder of csmith.h.")
_SEED = shared_flags.seed("csmith: that of the first program; the others count on", 1)
_NUM_WORKERS = shared_flags.num_workers()

_GENERATE_TIMEOUT_S = 60.0
_COMPILE_TIMEOUT_S = 300.0
_RUN_TIMEOUT_S = 5.0
_SLOWER = 6
"""A program with the policy may take as many times the limit: machines are busy at times."""
_MEMORY_BYTES = 1 << 30
_FILE_BYTES = 1 << 20

EQUAL, ENDLESS, UNUSABLE = "equal", "plain does not end normally", "plain is not compiled"
WRONG, SLOW, FAILED, FELL_BACK = "other output", "does not end", "is not compiled", "compiled without the policy"
_FAILURES = (WRONG, SLOW, FAILED, FELL_BACK)


@dataclasses.dataclass(frozen=True)
class Record:
    """One program, compiled by one compiler at one level in both ways.

    Attributes:
      seed: csmith's.
      major: the compiler's version.
      level: such as `Oz`.
      outcome: one of the constants above.
      differs: whether the objects differ.
    """

    seed: int
    major: int
    level: str
    outcome: str
    differs: bool = False


@entry_point.command
def entry() -> int:
    csmith = shutil.which("csmith")
    if csmith is None or not (Path(_INCLUDE.value) / "csmith.h").is_file():
        raise ToolchainError(f"csmith: no such program, or no {_INCLUDE.value}/csmith.h; install csmith, libcsmith-dev")
    if (_TARGET_TRIPLE.value is None) != (_EMULATOR.value is None):
        raise ConfigError("expected --target_triple and --emulator together: programs for another target are emulated")
    emulator = [] if _EMULATOR.value is None else [shutil.which(_EMULATOR.value) or ""]
    if not all(emulator):
        raise ToolchainError(f"--emulator={_EMULATOR.value}: no such program; qemu-aarch64 is in Debian's qemu-user")
    toolchains = [probe(clang) for clang in _CLANG_PATHS.value]
    target = Target(_TARGET_TRIPLE.value)
    architectures = {each.version[0]: architecture_of(target.architecture(each.clang)) for each in toolchains}
    output = Path(_OUTPUT_DIR.value)
    check_folder_writable(output)
    requests = policy_requests(_POLICY_PATH.value, _LEVELS.value)
    levels = PolicyRequest(levels=_LEVELS.value).levels or ()
    with scratch_directory() as scratch, exclusive_directory(output, "--output_dir"):
        if emulator:
            for toolchain in toolchains:
                _check_links(toolchain, target, scratch)
        clangs = [toolchain.clang for toolchain in toolchains]
        deployment = deploy(
            requests,
            scratch / "prefix",
            clangs,
            options=_OPTIONS.read(),
            option_trials=_OPTIONS.trials,
            pass_plugin=_OPTIONS.pass_plugin,
        )
        deployed = {
            str(each.major): {
                level: list(each.options.sets.options(level, architectures[each.major])) for level in levels
            }
            for each in deployment.compilers
        }
        policy = next((policy for policy in deployment.policies if policy.kind != OPTIONS), None)
        conditions = {
            "compilers": [toolchain.version_text for toolchain in toolchains],
            "csmith": _run([csmith, "--version"], scratch).stdout.decode().split("\n")[0],
            "levels": list(levels),
            "options": deployed,
            "trials": _OPTIONS.trials,
            "added": _ADDED.value,
            "policy": policy.checksum if policy else "",
            "target": target.triple or "",
        }
        check_conditions(output / "conditions.json", conditions)
        file = RecordFile(output / "records.jsonl", Record)
        known = {record.seed for record in file.records}
        seeds = range(_SEED.value, _SEED.value + _PROGRAMS.value)
        added = shlex.split(_ADDED.value)
        trial = Trial(csmith, _INCLUDE.value, deployment, toolchains, levels, added, target, emulator, scratch, output)
        missing = [seed for seed in seeds if seed not in known]
        with concurrent.futures.ThreadPoolExecutor(entry_point.num_workers(_NUM_WORKERS.value)) as pool:
            for results in progress_bar(pool.map(trial.run, missing), total=len(missing), unit="program"):
                file.append(results)
    shown = [record for record in file.records if record.seed in seeds]
    deciding = f"policy {policy.origin or requests[0].folder} {policy.checksum[:16]}" if policy else "no policy"
    about = f"{deciding}, {conditions['csmith']}"
    entry_point.echo(
        f"{len(seeds)} programs from seed {seeds.start}, {about}, added: {_ADDED.value or 'none'}, "
        f"{_OPTIONS.trials} further sets tried on each function"
    )
    for toolchain in toolchains:
        for level in levels:
            of_level = [r for r in shown if (r.major, r.level) == (toolchain.version[0], level)]
            counts = Counter(record.outcome for record in of_level)
            differ = sum(record.differs for record in of_level)
            text = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
            entry_point.echo(f"{toolchain.version_text} -{level}: {differ:,} objects differ; programs: {text}")
            if options := deployed[str(toolchain.version[0])].get(level):
                entry_point.echo(f"  with {' '.join(options)}")
    failed = [record for record in shown if record.outcome in _FAILURES]
    for record in failed:
        entry_point.echo(f"{output}/{record.seed}.c: {record.outcome} at -{record.level}, clang-{record.major}")
    return int(bool(failed))


def _static(target: Target) -> list[str]:
    """Options for linking: an emulator would look for shared libraries of the target."""
    return [*target.options, "-static"]


def _check_links(toolchain: Toolchain, target: Target, scratch: Path) -> None:
    """Raises ToolchainError if the compiler links no program for the target."""
    source = scratch / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    linked = _run([str(toolchain.clang), *_static(target), str(source), "-o", str(scratch / "empty")], scratch)
    if not linked.ok:
        raise ToolchainError(
            f"--target_triple={target.triple}: {toolchain.clang} links no program for it; install its C library and "
            f"libgcc, for AArch64 Debian's gcc-aarch64-linux-gnu and libc6-dev-arm64-cross: {linked.describe()}"
        )


@dataclasses.dataclass(frozen=True)
class Trial:
    """How programs are compared.

    Attributes:
      csmith: the program.
      include: the folder of its headers.
      deployment: of the policy, or of options.
      toolchains: the compilers.
      levels: optimisation levels, such as `Oz`.
      options: those of mlgo-clang alone.
      target: of the programs.
      emulator: the command that runs a program of another target; empty if none is needed.
      scratch: for a folder per program.
      output: for programs that fail.
    """

    csmith: str
    include: str
    deployment: Deployment
    toolchains: Sequence[Toolchain]
    levels: Sequence[str]
    options: Sequence[str]
    target: Target
    emulator: Sequence[str]
    scratch: Path
    output: Path

    def run(self, seed: int) -> list[Record]:
        """Generates one program and compares all of its builds."""
        with scratch_directory(self.scratch) as folder:
            source = folder / "program.c"
            # In its folder, since csmith writes a file to the current one.
            made = _run([self.csmith, "--seed", str(seed), "--output", str(source)], folder, _GENERATE_TIMEOUT_S)
            if not made.ok:
                raise ToolchainError(f"csmith: failed at seed {seed}: {made.describe()}")
            records = [
                self._compare(seed, toolchain, level, folder) for toolchain in self.toolchains for level in self.levels
            ]
            if any(record.outcome in _FAILURES for record in records):
                shutil.copy(source, self.output / f"{seed}.c")
            return records

    def _compare(self, seed: int, toolchain: Toolchain, level: str, folder: Path) -> Record:
        major = toolchain.version[0]
        plain, policy = folder / "plain", folder / "policy"
        record = Record(seed, major, level, UNUSABLE)
        if not self._compile(str(toolchain.clang), [f"-{level}"], plain).ok:
            return record
        expected = self._output(plain, _RUN_TIMEOUT_S)
        if expected is None or expected[0] != 0:
            return dataclasses.replace(record, outcome=ENDLESS)
        driver = str(self.deployment.driver(major=major))
        compiled = self._compile(driver, [f"-{level}", *self.options], policy)
        if not compiled.ok:
            return dataclasses.replace(record, outcome=FAILED)
        differs = plain.with_suffix(".o").read_bytes() != policy.with_suffix(".o").read_bytes()
        found = self._output(policy, _SLOWER * _RUN_TIMEOUT_S)
        outcome = SLOW if found is None else WRONG if found != expected else EQUAL
        if "mlgo:" in compiled.stderr_tail:
            outcome = FELL_BACK
        return dataclasses.replace(record, outcome=outcome, differs=differs)

    def _compile(self, compiler: str, options: Sequence[str], program: Path) -> ProcessResult:
        """Compiles the program of this folder to an object, and links that by the plain compiler's defaults."""
        folder, made = program.parent, program.with_suffix(".o")
        words = ["-w", f"-I{self.include}", *self.target.options, *options, "-c", "program.c", "-o", str(made)]
        compiled = _run([compiler, *words], folder, _COMPILE_TIMEOUT_S)
        if not compiled.ok:
            return compiled
        how = _static(self.target) if self.emulator else []
        linked = _run([compiler, *how, str(made), "-o", str(program)], folder, _COMPILE_TIMEOUT_S)
        return compiled if linked.ok else linked

    def _output(self, program: Path, timeout_s: float) -> tuple[int, bytes] | None:
        """The program's exit status and output; None if it did not end in time."""
        result = _run([*self.emulator, str(program)], program.parent, timeout_s, Sandbox.for_folder(program.parent))
        return None if result.timed_out else (result.returncode, result.stdout)


def _run(
    command: Sequence[str], folder: Path, timeout_s: float = _GENERATE_TIMEOUT_S, sandbox: Sandbox | None = None
) -> ProcessResult:
    memory, size = (_MEMORY_BYTES, _FILE_BYTES) if sandbox else (DEFAULT_MEMORY_BYTES, DEFAULT_FILE_BYTES)
    return processes.run(
        command, timeout_s=timeout_s, cwd=folder, sandbox=sandbox, memory_bytes=memory, file_bytes=size
    )


if __name__ == "__main__":
    entry()
