"""Runs a command line by clang and by mlgo-clang, each in a fresh copy of the same folder, and compares what they do.

What is not compared exactly, and why:

- Lines of standard error with `mlgo:` are ours, `warning: mlgo:` and `error: mlgo:`. They are counted.
- Names of temporary files (`lean-1a2b3c.o`) are random. They become `lean-XXXXXX.o`, in output and in files.
- Objects for Windows contain the time. It is left out.
- `-v` and CC_PRINT_OPTIONS show the options that mlgo-clang adds. They are left out.
- Where SIGCHLD is ignored, clang cannot wait for linkers and assemblers. mlgo-clang does not pass that on.
- A compiler that nobody listens to dies while it prints, perhaps before its last file; mlgo-clang prints what a
  compiler that has ended had to say. Files and standard output are not compared then.
- A compilation that fails is repeated without the policy, so what clang appends to a file is there twice.
- Whether the policy decides is not checked with `--rsp-quoting=`, which mlgo-clang leaves to clang.
- The file's name in what `-MJ` writes with `--print-supported-cpus` is freed memory in clang. It is not compared.
- What differs between two runs of clang itself, such as times. It is left out if a second run shows that.
"""

import contextlib
import dataclasses
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from compiler_opt.deploy.deployment import deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.policies.decisions import Decisions, provenance
from tests.deploy.command_lines import LINK_NAMES, LINKS, PRINTED, TEMPLATE, Case
from tests.deploy.sources import LEAN, save_policy
from tests.deploy.streams import Streams

_RANDOM = re.compile(rb"-[0-9a-f]{6}(?=[./\"' ,:]|$)", re.MULTILINE)
_OURS = re.compile(
    rb' "?(?:-fpass-plugin=[^" ]*/mlgo-[^" ]*|--load-pass-plugin=[^" ]*/mlgo-[^" ]*|'
    rb'-header-include-file"? "?/proc/[^" ]*|(?:-mllvm"? "?|-plugin-opt=)-disable-lsr=false)"?'
)
_COFF = b"\x64\x86"
_MESSAGE = re.compile(rb"(?m)^(?:warning|error): mlgo: (.*)\n")
_PROGRAM = re.compile(rb"(?m)^[\w.+-]+: (?=(?:fatal )?(?:error|warning|note|remark): )")
_UNAWAITED = b"Error waiting for child process"
_UNCLEAR = re.compile(
    rb"-###|-fdriver-only|-cc1|--rsp-quoting|--driver-mode=cl|-gen-cdb-fragment-path @"
    rb"|--?(E|preprocess|emit-ast|ast-dump)\b"
)
"""Commands are only printed, read otherwise, or given another action by -Xclang; and cl's options are left to clang."""

_COMPILES = {'"-emit-obj"', '"-S"', '"-emit-llvm"', '"-emit-llvm-bc"'}


_INLINES_NOTHING = {'"-disable-llvm-passes"', '"-fno-inline"', '"-fno-inline-functions"'}


@dataclasses.dataclass(frozen=True)
class Result:
    """What a command did.

    Attributes:
      status: as in `subprocess`, None for a time-out.
      out, err: its output.
      files: what is in its folder afterwards, by path: mode, and content or link.
      messages: ours, without paths.
    """

    status: int | None
    out: bytes
    err: bytes
    files: Mapping[str, tuple[int, bytes]]
    messages: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The comparison of a case.

    Attributes:
      differences: of mlgo-clang from clang; one line each, whose beginning up to a colon is its kind.
      messages: ours, without paths.
      uses_policy: whether the policy had to decide; None if that was not checked.
    """

    differences: Sequence[str]
    messages: Sequence[str]
    uses_policy: bool | None

    @property
    def kinds(self) -> list[str]:
        """Of the differences, the worst one first."""
        return sorted({difference.split(":")[0] for difference in self.differences}, key=_severity)


_DEFAULTS = OptionSets(dict.fromkeys(("Oz", "Os", "O2"), ("-disable-lsr=false",)), {"aarch64": {"Oz": ()}})


@dataclasses.dataclass(frozen=True)
class Drivers:
    """What is compared.

    Attributes:
      major: the compiler's version.
      clang: the compiler.
      default: a prefix whose decisions are the compiler's own, at -Oz and -O2, and whose options have their defaults.
      other: a prefix whose decisions are different ones in `LEAN`, at -Oz.
      root: a folder for links to all of them.
    """

    major: int
    clang: Path
    default: Path
    other: Path
    root: Path

    @classmethod
    def deploy(cls, toolchain: Toolchain, root: Path) -> "Drivers":
        """Deploys both prefixes below `root`."""
        root.mkdir(parents=True, exist_ok=True)
        none, policy = root / "none.json", root / "policy"
        Decisions({}, provenance("inlining", toolchain.version)).save(none)
        policy.mkdir(exist_ok=True)
        save_policy(policy)
        request = PolicyRequest(levels=("Oz", "O2"))
        deploy([request], root / "default", [toolchain.clang], decisions=[none], options=_DEFAULTS)
        deploy([PolicyRequest(policy, levels=("Oz",))], root / "other", [toolchain.clang])
        drivers = cls(toolchain.version[0], toolchain.clang, root / "default", root / "other", root)
        for name in (name.format(drivers.major) for name in LINK_NAMES):
            mode = "++" * ("++" in name)
            targets = {"plain": drivers._beside(mode)}
            targets |= {prefix: root / prefix / "bin" / f"mlgo-clang{mode}" for prefix in ("default", "other")}
            for folder, target in targets.items():
                (root / f"{folder}-links").mkdir(exist_ok=True)
                (root / f"{folder}-links" / name).symlink_to(target)
        return drivers

    def program(self, name: str, prefix: str) -> Path:
        """The program that has a name of `Case`, for `prefix` one of `plain`, `default` and `other`."""
        if name in LINK_NAMES:
            return self.root / f"{prefix}-links" / name.format(self.major)
        mode = name.removeprefix("clang")
        return (
            self._beside(mode) if prefix == "plain" else self.root / prefix / "bin" / f"mlgo-clang{mode}-{self.major}"
        )

    def _beside(self, mode: str) -> Path:
        return self.clang.with_name(self.clang.name.replace("clang", f"clang{mode}"))


class Place:
    """A folder in which one command runs at a time.

    Args:
      root: where it and a folder for temporary files are; both are replaced for each command.
      drivers: what is compared.
      timeout_s: after which a command is killed.
    """

    def __init__(self, root: Path, drivers: Drivers, timeout_s: float = 20.0):
        self._folder, self._temporary, self._log = root / "place", root / "temporary", root / "log"
        self.drivers = drivers
        self._timeout_s = timeout_s
        root.mkdir(parents=True, exist_ok=True)

    def compare(self, case: Case, *, checks_use: bool = True) -> Verdict:
        """Runs the case by clang and by mlgo-clang; also checks, if asked, at which levels the policy decides."""
        plain, driven = self.run(case, "plain"), self.run(case, "default")
        unawaited = _UNAWAITED in plain.err or ("CHLD" in case.shell and case.stderr == "closed")
        differences = [] if unawaited else list(_differences(plain, driven))
        if {case.stdout, case.stderr} & {"full", "unread"}:
            differences = [line for line in differences if line.startswith(("status:", "stderr"))]
        if plain.status != 0:
            differences = [line for line in differences if f" place/{PRINTED}:" not in line]
        if "--print-supported-cpus" in case.words:
            differences = [line for line in differences if not line.startswith("content of .json:")]
        if differences:
            unsteady = {line.split(":")[0] for line in _differences(plain, self.run(case, "plain"))}
            differences = [line for line in differences if line.split(":")[0] not in unsteady]
        is_checked = checks_use and not any("compiling with plain" in message for message in driven.messages)
        uses = self._has_to_decide(case, plain) if is_checked else None
        if uses is not None:
            decided = self.decides(case)
            if decided and not uses:
                differences.append("policy: decides at another level")
            if uses and not decided:
                differences.append("policy: does not decide")
        return Verdict(differences, driven.messages, uses)

    def run(self, case: Case, prefix: str, **more_variables: str) -> Result:
        """Runs the case by a program of `prefix`, see `Drivers.program`."""
        self._prepare(case)
        program = self.drivers.program(case.name, prefix)
        place = str(self._folder)
        variables: dict[str, str | None] = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self._temporary),
            "TMPDIR": str(self._temporary),
            "LC_ALL": "C.UTF-8",
            "CC": str(self.drivers.program("clang", prefix)),
            "CXX": str(self.drivers.program("clang++", prefix)),
            **case.variables,
            **more_variables,
        }
        closing = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-"}
        closed = " ".join(closing[name] for name in closing if getattr(case, name) == "closed")
        script = f'{case.shell or ":"}\nexec "$@" {closed}'
        words = [word.replace("{place}", place) for word in case.words]
        with Streams(case) as streams:
            # Given by path, since PATH may be unset.
            process = subprocess.Popen(
                ["/bin/bash", "-c", script, "bash", str(program), *words],
                cwd=self._folder,
                env={name: value for name, value in variables.items() if value is not None},
                stdin=streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr,
                start_new_session=True,
            )
            streams.close_theirs()
            try:
                status: int | None = process.wait(self._timeout_s)
            except subprocess.TimeoutExpired:
                status = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
            out, err = streams.read()
        messages = [re.sub(rb"/\S*/", b"", text).decode() for text in _MESSAGE.findall(err)]
        # What the shell says of what it cannot do, or of a program that a signal ended, is not clang's.
        err = _OURS.sub(b"", _MESSAGE.sub(b"", err))
        return Result(status, _steady(out), _steady(err), self._files(), messages)

    def _prepare(self, case: Case) -> None:
        for folder in (self._folder, self._temporary):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        write_sources(self._folder)
        for name, content in case.files.items():
            # Words that were moved to a file name the folder, too.
            (self._folder / name).write_bytes(content.replace(b"{place}", bytes(self._folder)))

    def _files(self) -> dict[str, tuple[int, bytes]]:
        found = {}
        for root in (self._folder, self._temporary):
            for path in sorted(root.rglob("*")):
                name = _steady(bytes(path.relative_to(root.parent))).decode(errors="replace")
                mode = path.lstat().st_mode
                if stat.S_ISLNK(mode):
                    content = os.fsencode(path.readlink())
                else:
                    content = _steady(path.read_bytes()) if stat.S_ISREG(mode) else b""
                if path.name == PRINTED:
                    content = _OURS.sub(b"", content)
                found[name] = mode, content
        return found

    def _has_to_decide(self, case: Case, plain: Result) -> bool | None:
        """Whether clang compiles `LEAN` at -Oz, by what it prints of its commands; None if unclear."""
        if plain.status != 0 or case.variables.get("MLGO_NEVER_WORSE"):
            return None
        text = b"\n".join([" ".join(case.words).encode(), *case.files.values()])
        if b'"-cc1"' in plain.err or _UNCLEAR.search(text):
            return None
        if case.stdin != "null" and re.search(rb"(?m) -$| - |stdin", text):
            return None
        asked = dataclasses.replace(case, words=("-###", *case.words), stdout="pipe", stderr="pipe")
        commands = self.run(asked, "plain").err.decode(errors="replace")
        if "plugin-opt" in commands or "-flto" in " ".join(case.words):
            return None  # Linkers optimise by attributes of functions.
        lines = [line for line in re.split(r'\n(?= ")', commands) if '"-cc1"' in line]
        compiled = [set(re.findall(r'"[^"]*"', line)) for line in lines]
        # A level, and not the value of another option.
        level = re.compile(r'(?<!-file")(?<! "-MT")(?<! "-[oDI]")(?<!-include") "(-O[^"]*)"')
        levels = [level.findall(line)[-1:] for line in lines]
        return any(
            words & _COMPILES and not words & _INLINES_NOTHING and last == ["-Oz"]
            for words, last in zip(compiled, levels, strict=True)
        ) and self._has_lean(compiled)

    def _has_lean(self, compiled: Sequence[set[str]]) -> bool:
        """Whether a source with `LEAN` is among those that are compiled."""
        marker = LEAN.split("(")[0]
        names = {word.strip('"') for words in compiled for word in words}
        return any(marker in (self._folder / name).read_text(errors="replace") for name in names if self._is_file(name))

    def _is_file(self, name: str) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return (self._folder / name).is_file()
        return False

    def decides(self, case: Case) -> bool:
        """Whether the policy of the other deployment decides otherwise than the compiler."""
        self._log.write_bytes(b"")
        self.run(case, "other", MLGO_LOG=str(self._log))
        return self._log.stat().st_size > 0


def write_sources(folder: Path) -> None:
    """Writes the files of the template to a folder."""
    for name, text in TEMPLATE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, target in LINKS.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)


def _steady(content: bytes) -> bytes:
    if content.startswith(_COFF):
        content = content[:4] + bytes(4) + content[8:]
    return _RANDOM.sub(b"-XXXXXX", content)


def _differences(plain: Result, driven: Result) -> Iterator[str]:
    if plain.status != driven.status:
        yield f"status: {plain.status} by clang, {driven.status} by mlgo-clang"
    if plain.out != driven.out:
        yield f"stdout: {_first_difference(plain.out, driven.out)}"
    if plain.err != driven.err:
        same = _PROGRAM.sub(b"", plain.err) == _PROGRAM.sub(b"", driven.err)
        yield f"stderr{' (program name)' * same}: {_first_difference(plain.err, driven.err)}"
    for name in sorted({*plain.files, *driven.files}):
        if name not in driven.files:
            yield f"file missing: {name}"
        elif name not in plain.files:
            yield f"file too many: {name}"
        elif plain.files[name][0] != driven.files[name][0]:
            yield f"mode: {name}: {plain.files[name][0]:o} by clang, {driven.files[name][0]:o} by mlgo-clang"
        elif plain.files[name] != driven.files[name]:
            differs = _first_difference(plain.files[name][1], driven.files[name][1])
            yield f"content of {Path(name).suffix}: {name}: {differs}"


def _first_difference(plain: bytes, driven: bytes) -> str:
    """The first lines that differ."""
    ours, theirs = driven.split(b"\n"), plain.split(b"\n")
    at = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), min(len(ours), len(theirs)))
    shown = [(lines[at][:200].decode(errors="replace") if at < len(lines) else None) for lines in (theirs, ours)]
    return f"line {at + 1}: {shown[0]!r} by clang, {shown[1]!r} by mlgo-clang"


def _severity(kind: str) -> int:
    """Its place in an order of what is worst."""
    order = ("policy", "status", "file missing", "file too many", "content", "stdout", "mode", "stderr")
    return next(place for place, start in enumerate(order) if kind.startswith(start)) + kind.endswith(")")
