"""Counts what the code generator makes of a function's instructions: opcodes, refined by what decides their encoding.

A token is an opcode with the classes of its type, its operands, its address, and of whether it is folded into another
instruction, as instruction selection does for most targets: `load.i32.d8`, `icmp.i64.imm8.fused`, `call.arg.glob`. The
number of bytes of each is learnt; nothing here knows an encoding.
"""

import re
from collections import Counter, defaultdict

from compiler_opt.cost_models.ir2native import operands
from compiler_opt.cost_models.ir2native.ir_text import Function, Line, arguments, split_operands
from compiler_opt.cost_models.ir2native.operands import constant_class, integer_class, last_word, type_class

_BINARY = frozenset("add sub mul udiv sdiv urem srem shl lshr ashr and or xor fadd fsub fmul fdiv frem".split())
_CASTS = frozenset(
    "zext sext trunc fptosi fptoui sitofp uitofp fpext fptrunc bitcast ptrtoint inttoptr addrspacecast".split()
)
_CALLS = frozenset(("call", "tail call", "musttail call", "notail call", "invoke"))
_FOLDS_A_LOAD = _BINARY | frozenset(("icmp", "fcmp", "zext", "sext", "call", "sitofp", "fpext"))
_CALLEE = re.compile(r"(@(?:\"\"|[-\w$.]+)|%\d+|asm )[^@%]*?\(")
_SUFFIX = re.compile(r"(?:\.(?:p\d+|i\d+|f\d+|v\d+\w*|nxv\w+|isVoid|sl_\w+|x86_fp80|bf16))+$")
_FLAGS = re.compile(
    r"^(?:nuw|nsw|exact|disjoint|nneg|fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|samesign|inbounds|nusw|volatile"
    r"|atomic) "
)
_LABELS = re.compile(r"label %(\d+)")
_PHI = re.compile(r"\[ ([^,\[\]]+), %(\d+) \]")
_FAR_INSTRUCTIONS = 35
"""Instructions between a branch and its target beyond which its offset takes more than a byte, on most machines."""


class FunctionTokens:
    """The tokens of one function.

    Attributes:
      counts: by token.
      weightless: the values that need no register of their own: folded addresses, compared flags, stack slots.
    """

    def __init__(self, function: Function, local_names: frozenset[str]):
        """`local_names` as in `ModuleText`."""
        self.counts: Counter[str] = Counter()
        self.weightless: set[int] = set()
        self._local = local_names
        self._lines: list[tuple[int, Line]] = [
            (index, line) for index, each in enumerate(function.blocks) for line in each.lines
        ]
        self._block_of = {each.label: index for index, each in enumerate(function.blocks)}
        self._starts: list[int] = []
        position = 0
        for each in function.blocks:
            self._starts.append(position)
            position += len(each.lines)
        self._definition: dict[int, int] = {}
        self._uses: dict[int, list[int]] = defaultdict(list)
        for position, (_, (result, _, rest)) in enumerate(self._lines):
            if result >= 0:
                self._definition[result] = position
            for value in operands.used_values(rest):
                self._uses[value].append(position)
        self._parameters = {number: number for number in range(len(function.parameters))}
        self._geps: dict[int, str] = {}
        for _, (result, opcode, rest) in self._lines:
            if opcode == "getelementptr":
                self._gep(result, rest)
        for position, (block, (result, opcode, rest)) in enumerate(self._lines):
            try:
                self._count(position, block, result, opcode, rest)
            except (IndexError, ValueError):
                # No operands where some are expected: text of a form that is not known.
                self.counts["unread"] += 1

    def _opcode(self, value: int) -> str:
        position = self._definition.get(value)
        return "" if position is None else self._lines[position][1][1]

    def _gep(self, result: int, rest: str) -> None:
        while match := _FLAGS.match(rest):
            rest = rest[match.end() :]
        kind = operands.gep_class(rest)
        users = [self._lines[use][1] for use in self._uses.get(result, ())]
        is_folded = kind not in ("mul", "far") and bool(users)
        for _, opcode, user in users:
            is_address = opcode == "load" or (opcode == "store" and last_word(split_operands(user)[0]) != f"%{result}")
            is_folded = is_folded and (is_address or opcode == "getelementptr")
        base = last_word(split_operands(rest)[1]) if "," in rest else ""
        where = self._place(base)
        if is_folded or kind == "zero":
            self._geps[result] = f"{kind}{where}"
            self.weightless.add(result)
            self.counts["gep.folded"] += 1
        else:
            self.counts[f"gep.{kind}{where}"] += 1

    def _place(self, pointer: str) -> str:
        """What kind of base an address has: `.stk`, `.glob`, `.got` or nothing."""
        if pointer.startswith("%") and pointer[1:].isdigit():
            return ".stk" if self._opcode(int(pointer[1:])) == "alloca" else ""
        if pointer.startswith("@"):
            return ".glob" if pointer[1:] in self._local else ".got"
        if "@" in pointer:
            name = re.search(r"@([-\w$.]+)", pointer)
            return ".glob" if name and name[1] in self._local else ".got"
        return ""

    def _address(self, pointer: str) -> str:
        if pointer.startswith("%") and pointer[1:].isdigit():
            value = int(pointer[1:])
            if value in self._geps:
                return f".{self._geps[value]}"
            return ".stk" if self._opcode(value) == "alloca" else ".reg"
        return self._place(pointer) or ".expr"

    def _single_user(self, value: int, block: int) -> str:
        """The opcode of the only user, if it is in the same block, else nothing."""
        users = self._uses.get(value, ())
        if len(users) == 1 and self._lines[users[0]][0] == block:
            return self._lines[users[0]][1][1]
        return ""

    def _value(self, text: str) -> str:
        """The class of an operand's value; globals by how they are reached."""
        kind = constant_class(text)
        if kind in ("glob", "expr"):
            return self._place(text)[1:] or "expr"
        return "stk" if kind == "reg" and self._place(text) else kind

    def _count(self, position: int, block: int, result: int, opcode: str, rest: str) -> None:
        counts = self.counts
        while match := _FLAGS.match(rest):
            rest = rest[match.end() :]
        if opcode == "load":
            parts = split_operands(rest)
            user = self._single_user(result, block)
            folded = ".folded" if user in _FOLDS_A_LOAD else ""
            counts[f"load.{type_class(parts[0])}{self._address(last_word(parts[1]))}{folded}"] += 1
        elif opcode == "store":
            parts = split_operands(rest)
            value = last_word(parts[0])
            counts[f"store.{type_class(parts[0])}.{self._stored(value)}{self._address(last_word(parts[1]))}"] += 1
        elif opcode in _BINARY:
            self._binary(opcode, result, rest, block)
        elif opcode in ("icmp", "fcmp"):
            predicate, _, tail = rest.partition(" ")
            other = constant_class(last_word(split_operands(tail)[-1]))
            user = self._single_user(result, block)
            fused = f".{user}" if user in ("br", "select", "zext") else ""
            if user in ("br", "select"):
                self.weightless.add(result)
            order = "fp" if opcode == "fcmp" else "eq" if predicate in ("eq", "ne") else "ord"
            counts[f"{opcode}.{type_class(tail)}.{other}{fused}.{order}"] += 1
        elif opcode in _CALLS:
            self._call(position, opcode, result, rest)
        elif opcode == "br":
            self._branch(position, block, rest)
        elif opcode == "phi":
            self._phi(result, rest)
        elif opcode in _CASTS:
            source = operands.used_values(rest)
            from_load = ".load" if source and self._opcode(source[0]) == "load" else ""
            target = type_class(rest.rpartition(" to ")[2])
            counts[f"{opcode}.{type_class(rest)}.{target}{from_load}"] += 1
        elif opcode == "select":
            parts = split_operands(rest)
            values = sorted(constant_class(last_word(part)) for part in parts[1:])
            counts[f"select.{type_class(parts[1])}.{'.'.join(values)}"] += 1
        elif opcode == "ret":
            counts[f"ret.{type_class(rest)}.{self._value(last_word(rest))}"] += 1
        elif opcode == "switch":
            self._switch(rest)
        elif opcode == "alloca":
            self.weightless.add(result)
            counts["alloca"] += 1
        elif opcode in ("extractvalue", "insertvalue", "landingpad", "resume", "unreachable", "freeze", "fneg"):
            counts[opcode] += 1
        elif opcode != "getelementptr":
            counts[f"{opcode}.{type_class(rest)}"] += 1

    def _stored(self, value: str) -> str:
        kind = self._value(value)
        if kind == "reg" and value[1:].isdigit() and self._opcode(int(value[1:])) in _BINARY:
            users = self._uses[int(value[1:])]
            return "op" if len(users) == 1 else "reg"
        return kind

    def _binary(self, opcode: str, result: int, rest: str, block: int) -> None:
        parts = split_operands(rest)
        kind, text = type_class(parts[0]), last_word(parts[-1])
        other = constant_class(text)
        if opcode in ("mul", "udiv", "urem", "sdiv", "srem") and other not in ("reg", "expr"):
            number = abs(int(text[:20])) if text.lstrip("-").isdigit() else 0
            other = "pow2" if number and not number & (number - 1) else "lea" if number in (3, 5, 9) else other
        elif opcode in ("and", "or", "xor") and text in ("255", "65535", "4294967295", "-1"):
            other = f"m{text}"
        first = last_word(parts[0])
        # Two-address machines copy an operand that is needed again.
        copied = ""
        if first[1:].isdigit() and first.startswith("%"):
            copied = ".copy" if len(self._uses[int(first[1:])]) > 1 else ""
        if self._single_user(result, block) == "store":
            copied += ".st"
        self.counts[f"{opcode}.{kind}.{other}{copied}"] += 1

    def _call(self, position: int, opcode: str, result: int, rest: str) -> None:
        counts = self.counts
        match = _CALLEE.search(rest)
        if match is None:
            counts["call.unknown"] += 1
            return
        callee = match[1]
        given = arguments(rest, match.end() - 1)
        if callee.startswith("@llvm."):
            self._intrinsic(_SUFFIX.sub("", callee[1:]), rest, given)
            return
        if callee == "asm ":
            counts["call.asm"] += 1
            return
        indirect = callee.startswith("%")
        tail = ".tail" if opcode in ("tail call", "musttail call") and self._is_returned(position) else ""
        invoke = ".invoke" if opcode == "invoke" else ""
        if indirect:
            source = self._opcode(int(callee[1:]))
            counts[f"call.indirect{tail}{invoke}{'.load' if source == 'load' else ''}"] += 1
        else:
            counts[f"call.direct{tail}{invoke}"] += 1
        integers = 0
        for number, argument in enumerate(given):
            kind = type_class(argument)
            is_integer = kind[0] == "i"
            integers += is_integer
            value = last_word(argument)
            what = self._value(value)
            if what == "reg" and value[1:].isdigit():
                name = int(value[1:])
                what = self._given(name, number)
            place = ".pushed" if is_integer and integers > 6 else ""
            width = kind if what in ("fp", "imm64") or kind in ("f32", "f64", "vec", "agg", "wide") else ""
            counts[f"arg.{what}{width}{place}"] += 1
            counts["arg"] += 1
            if "byval(" in argument:
                counts["arg.byval"] += 1
            if "sret(" in argument:
                counts["arg.sret"] += 1
        if result >= 0 and self._uses.get(result):
            counts["call.used_result"] += 1

    def _is_returned(self, position: int) -> bool:
        """Whether the instruction behind this one returns, so that a call may be a jump."""
        return position + 1 < len(self._lines) and self._lines[position + 1][1][1] == "ret"

    def _given(self, name: int, number: int) -> str:
        if name in self._parameters:
            return "same" if name == number else "moved"
        opcode = self._opcode(name)
        if opcode == "phi":
            return "phi"
        return "once" if len(self._uses[name]) == 1 else "kept"

    def _intrinsic(self, name: str, rest: str, given: list[str]) -> None:
        if name.startswith(("llvm.lifetime", "llvm.dbg", "llvm.assume", "llvm.invariant", "llvm.experimental.noalias")):
            return
        kind = type_class(rest)
        if name in ("llvm.memcpy", "llvm.memset", "llvm.memmove", "llvm.memcpy.inline"):
            length = last_word(given[2]) if len(given) > 2 else "%"
            if length.isdigit():
                size = int(length[:18])
                kind = next((f"le{limit}" for limit in (4, 8, 16, 32, 64, 128) if size <= limit), "gt128")
                kind += ".odd" if size & (size - 1) and size <= 128 else ""
                for argument in given[:2]:
                    place = self._place(last_word(argument))
                    if place:
                        self.counts[f"{name}.arg{place}"] += 1
            else:
                kind = "call"
            if name == "llvm.memset":
                kind += "." + constant_class(last_word(given[1]))
        self.counts[f"{name}.{kind}"] += 1

    def _branch(self, position: int, block: int, rest: str) -> None:
        targets = [self._block_of.get(int(label), block) for label in _LABELS.findall(rest)]
        near = [self._distance(position, target) for target in targets]
        if len(targets) == 1:
            if targets[0] == block + 1:
                self.counts["br.next"] += 1
            else:
                self.counts[f"br{near[0]}"] += 1
            return
        is_next = block + 1 in targets
        jumps = [distance for target, distance in zip(targets, near, strict=True) if target != block + 1]
        self.counts[f"br.cond{'' if is_next else '.both'}{max(jumps, default='')}"] += 1
        compared = operands.used_values(rest.partition(",")[0])
        source = self._opcode(compared[0]) if compared else ""
        if source not in ("icmp", "fcmp") or self._single_user(compared[0], block) != "br":
            self.counts["br.test"] += 1

    def _distance(self, position: int, target: int) -> str:
        start = self._starts[target] if target < len(self._starts) else position
        return ".far" if abs(start - position) > _FAR_INSTRUCTIONS else ""

    def _phi(self, result: int, rest: str) -> None:
        kind = type_class(rest)
        self.counts[f"phi.{kind}"] += 1
        for value, _ in _PHI.findall(rest):
            what = self._value(value)
            if what == "reg":
                # An incoming value that dies here can be in the same register.
                number = int(value[1:]) if value[1:].isdigit() else -1
                what = "once" if len(self._uses.get(number, ())) == 1 else "kept"
                if number in self._parameters:
                    what = "param"
            self.counts[f"phi.in.{what}"] += 1

    def _switch(self, rest: str) -> None:
        cases = rest.partition("[")[2]
        values = sorted(int(number[:18]) for number in re.findall(r"i\d+ (-?\d+), label", cases))
        self.counts["switch"] += 1
        if not values:
            return
        span = values[-1] - values[0] + 1
        is_table = len(values) >= 4 and len(values) * 10 >= span * 4
        self.counts["switch.tables" if is_table else "switch.compares"] += 1
        self.counts["switch.cases.table" if is_table else "switch.cases"] += len(values)
        if not is_table:
            self.counts["switch.cases.large"] += sum(integer_class(value) in ("imm32", "imm64") for value in values)
