"""Decodes machine code of x86-64 to instructions with the values that they read and write, by iced-x86."""

import dataclasses
import functools
import importlib.util
from collections.abc import Mapping
from typing import Any

from compiler_opt.errors import MissingPackageError

FLAGS_REGISTER = "RFLAGS"
"""The name of the flags among registers."""

_PACKAGE = "iced_x86"
_CONDITIONAL_READS = ("READ", "COND_READ", "READ_WRITE", "READ_COND_WRITE")
_WRITES = ("WRITE", "COND_WRITE", "READ_WRITE", "READ_COND_WRITE")


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """A place in memory, or an address that is only computed.

    Attributes:
      base: whole register, e.g. `RAX`, or nothing.
      index: the same.
      segment: `FS` or `GS`, or nothing.
      has_displacement: whether a constant is added, or the linker adds one.
      is_read: the instruction reads what is there.
      is_written: it writes there.
    """

    base: str = ""
    index: str = ""
    segment: str = ""
    has_displacement: bool = False
    is_read: bool = False
    is_written: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction.

    Attributes:
      mnemonic: e.g. `ADD`.
      form: mnemonic with kinds and sizes of operands, iced's `Code`, e.g. `ADD_R32_RM32`.
      prefixes: of `LOCK`, `REP`, `REPNE`.
      has_memory_operand: its explicit operand is in memory, where the form allows both.
      reads: whole registers whose values it uses other than for addresses, e.g. `RAX`, `ZMM3`, `RFLAGS`.
      writes: whole registers that it changes.
      memory: its explicit memory operand, if any.
      num_immediates: constants among its operands, without branch targets.
    """

    mnemonic: str
    form: str
    prefixes: tuple[str, ...] = ()
    has_memory_operand: bool = False
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    memory: tuple[Memory, ...] = ()
    num_immediates: int = 0


def require_decoder() -> None:
    """Raises MissingPackageError unless iced-x86 is installed."""
    if importlib.util.find_spec(_PACKAGE) is None:
        raise MissingPackageError(
            "models of blocks need iced-x86, which this installation lacks; pip install 'compiler_opt[cost_models]'"
        )


class Decoder:
    """Decodes blocks; remembers what it found about the bytes of each instruction."""

    def __init__(self) -> None:
        """Raises MissingPackageError if iced-x86 is not installed."""
        require_decoder()
        self._iced = _load()
        self._known: dict[bytes, Instruction] = {}
        # By bytes without the displacement, whose value says nothing about what an instruction reads or writes.
        self._described: dict[bytes, Instruction] = {}

    def canonical(self, code: bytes) -> bytes | None:
        """The code with all relative branch targets zero; None if it is no sequence of whole instructions."""
        iced = self._iced.package
        decoder = iced.Decoder(64, code)
        result = bytearray(code)
        position = 0
        for instruction in decoder:
            if instruction.is_invalid:
                return None
            if instruction.op0_kind == self._iced.near_branch and instruction.op_count:
                offsets = decoder.get_constant_offsets(instruction)
                if offsets.has_immediate:
                    start = position + offsets.immediate_offset
                    result[start : start + offsets.immediate_size] = bytes(offsets.immediate_size)
            position += instruction.len
        return bytes(result) if position == len(code) else None

    def decode(self, code: bytes) -> list[Instruction] | None:
        """The instructions of a block; None if its bytes are no sequence of whole instructions."""
        result = []
        position = 0
        decoder = self._iced.package.Decoder(64, code)
        for instruction in decoder:
            end = position + instruction.len
            key = code[position:end]
            found = self._known.get(key)
            if found is None:
                if instruction.is_invalid:
                    return None
                offsets = decoder.get_constant_offsets(instruction)
                start = offsets.displacement_offset
                rest = key[:start] + key[start + offsets.displacement_size :]
                found = self._described.get(rest)
                if found is None:
                    found = self._described[rest] = self._iced.describe(instruction)
                self._known[key] = found
            result.append(found)
            position = end
        return result if position == len(code) else None


@functools.cache
def _load() -> "_Iced":
    return _Iced(importlib.import_module(_PACKAGE))


class _Iced:
    """The package, with the names of its numbers."""

    def __init__(self, package: Any):
        self.package = package
        self._factory = package.InstructionInfoFactory()
        self._mnemonics = _names(package.Mnemonic)
        self._forms = _names(package.Code)
        self._registers = {number: "" if name == "NONE" else name for number, name in _names(package.Register).items()}
        self._whole = {number: self._registers[package.RegisterExt.full_register(number)] for number in self._registers}
        accesses = {name: number for number, name in _names(package.OpAccess).items()}
        self._reads = {accesses[name] for name in _CONDITIONAL_READS}
        self._writes = {accesses[name] for name in _WRITES}
        kinds = package.OpKind
        self.near_branch = kinds.NEAR_BRANCH64
        self._register, self._memory = kinds.REGISTER, kinds.MEMORY
        self._immediates = {number for number, name in _names(kinds).items() if name.startswith("IMMEDIATE")}

    def describe(self, given: Any) -> Instruction:
        """What `Instruction` says of iced's instruction, which is valid."""
        info = self._factory.info(given)
        kinds = [given.op_kind(number) for number in range(given.op_count)]
        read_by_operand = {
            self._whole[given.op_register(number)]
            for number, kind in enumerate(kinds)
            if kind == self._register and info.op_access(number) in self._reads
        }
        memory = self._memory_operand(given, info, kinds)
        in_address = {memory.base, memory.index, memory.segment} - {""} if memory else set()
        used = [(self._whole[each.register], each.access) for each in info.used_registers()]
        reads = [name for name, access in used if access in self._reads]
        reads = [name for name in reads if name in read_by_operand or name not in in_address]
        writes = [name for name, access in used if access in self._writes]
        if given.rflags_read:
            reads.append(FLAGS_REGISTER)
        if given.rflags_modified:
            writes.append(FLAGS_REGISTER)
        prefixes = {"LOCK": given.has_lock_prefix, "REP": given.has_rep_prefix, "REPNE": given.has_repne_prefix}
        return Instruction(
            mnemonic=self._mnemonics[given.mnemonic],
            form=self._forms[given.code],
            prefixes=tuple(name for name, is_there in prefixes.items() if is_there),
            has_memory_operand=memory is not None,
            reads=tuple(dict.fromkeys(reads)),
            writes=tuple(dict.fromkeys(writes)),
            memory=() if memory is None else (memory,),
            num_immediates=sum(kind in self._immediates for kind in kinds),
        )

    def _memory_operand(self, given: Any, info: Any, kinds: list[int]) -> Memory | None:
        if self._memory not in kinds:
            return None
        access = info.op_access(kinds.index(self._memory))
        segment = self._registers[given.memory_segment]
        return Memory(
            base="" if given.is_ip_rel_memory_operand else self._whole[given.memory_base],
            index=self._whole[given.memory_index],
            segment=segment if segment in ("FS", "GS") else "",
            has_displacement=given.memory_displ_size > 0,
            is_read=access in self._reads,
            is_written=access in self._writes,
        )


def _names(enumeration: Any) -> Mapping[int, str]:
    return {number: name for name, number in vars(enumeration).items() if isinstance(number, int)}
