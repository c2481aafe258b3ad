"""Inputs that are code or data in a language, for interpreters, compilers and build tools; see `program_inputs`."""

import random
from collections.abc import Callable, Iterator


def _sql_sums(rng: random.Random, size: int) -> str:
    """Numbers in two tables, and queries that group, join and sort them."""
    lines = [
        "CREATE TABLE item(id INTEGER PRIMARY KEY, kind INT, price REAL);",
        "CREATE TABLE sale(id INTEGER PRIMARY KEY, item INT, day INT, number INT);",
        "CREATE INDEX sale_item ON sale(item);",
        "BEGIN;",
        *(f"INSERT INTO item VALUES({n},{rng.randrange(20)},{rng.randrange(10**4) / 100});" for n in range(size // 10)),
        *(
            f"INSERT INTO sale VALUES({n},{rng.randrange(size // 10)},{rng.randrange(365)},{rng.randrange(9)});"
            for n in range(size)
        ),
        "COMMIT;",
        "SELECT kind, sum(number * price), count(*) FROM sale JOIN item ON item.id = sale.item GROUP BY kind;",
        "SELECT day, sum(number) AS n FROM sale GROUP BY day ORDER BY n DESC, day LIMIT 20;",
    ]
    lines += [
        f"SELECT count(*), max(day) FROM sale WHERE item = {rng.randrange(size // 10)} AND number > 3;"
        for _ in range(size // 20)
    ]
    return "\n".join([*lines, ""])


def _sql_texts(rng: random.Random, size: int) -> str:
    """Texts that are changed, searched, ranked and deleted, with common table expressions and a trigger."""
    lines = [
        "CREATE TABLE note(name TEXT UNIQUE, body TEXT, parent TEXT);",
        "CREATE TABLE change(name TEXT, old TEXT);",
        "CREATE TRIGGER kept AFTER UPDATE ON note BEGIN INSERT INTO change VALUES(old.name, substr(old.body, 1, 9)); "
        "END;",
        "BEGIN;",
    ]
    for number in range(size):
        body = " ".join(rng.choice(_NAMES) for _ in range(12))
        lines.append(f"INSERT INTO note VALUES('n{number}','{body}','n{rng.randrange(number + 1) // 2}');")
        if number % 5 == 0:
            lines.append(
                f"UPDATE note SET body = upper(body) || '{number}' WHERE name = 'n{rng.randrange(number + 1)}';"
            )
    lines += [
        "COMMIT;",
        "WITH RECURSIVE up(name, depth) AS (SELECT 'n0', 0 UNION SELECT note.name, depth + 1 FROM note JOIN up ON "
        "note.parent = up.name WHERE depth < 6) SELECT depth, count(*) FROM up GROUP BY depth;",
        "SELECT name, length(body), row_number() OVER (ORDER BY body, name) FROM note WHERE body LIKE '%delta%' "
        "LIMIT 50;",
        "SELECT count(*), group_concat(DISTINCT substr(old, 1, 2)) FROM change;",
        "SELECT printf('%08.3f|%s', avg(length(replace(body, 'a', ''))), max(hex(body))) FROM note;",
        "DELETE FROM note WHERE body GLOB '*[0-9]'; SELECT count(*) FROM note;",
    ]
    return "\n".join([*lines, ""])


def _js_numbers(rng: random.Random, size: int) -> str:
    """Loops over arrays of numbers."""
    return f"""
var n = {size}, seed = {rng.randrange(1, 10**6)}, a = [], i, j, sum = 0;
function next() {{ seed = (seed * 16807) % 2147483647; return seed; }}
for (i = 0; i < n; i++) a.push(next() % 1000 / 8);
function sieve(limit) {{
  var marks = [], count = 0;
  for (var p = 2; p < limit; p++) {{
    if (marks[p]) continue;
    count++;
    for (var q = p * p; q < limit; q += p) marks[q] = true;
  }}
  return count;
}}
for (i = 0; i < 40; i++) for (j = 1; j < 40; j++) sum += (a[i] * j + a[(i * j) % n]) % 17;
print(sum.toFixed(3), sieve(n * 4), Math.floor(a.reduce(function (x, y) {{ return x + Math.sqrt(y); }}, 0)));
print(a.sort(function (x, y) {{ return x - y; }}).slice(0, 10).join());
"""


def _js_objects(rng: random.Random, size: int) -> str:
    """Objects with prototypes, closures, texts, regular expressions, exceptions and JSON."""
    rows = ",\n".join(
        f'  {{"name": "{rng.choice(_NAMES)}{number}", "tags": ["{rng.choice(_NAMES)}", {number % 7}], "on": null}}'
        for number in range(size)
    )
    return f"""
var rows = [
{rows}
];
function Node(row) {{ this.row = row; this.children = {{}}; }}
Node.prototype.add = function (path, row) {{
  if (!path.length) throw new RangeError(row.name);
  var key = path.charAt(0), child = this.children[key];
  if (!child) child = this.children[key] = new Node(null);
  if (path.length > 1) child.add(path.substring(1), row); else child.row = row;
  return this;
}};
Node.prototype.walk = function (visit) {{
  if (this.row) visit(this.row);
  for (var key in this.children) this.children[key].walk(visit);
}};
var tree = new Node(null), errors = 0, seen = [], text;
rows.forEach(function (row) {{
  try {{ tree.add(row.name.replace(/[aeiou](\\d*)/g, function (m, d) {{ return d; }}), row); tree.add("", row); }}
  catch (e) {{ errors += e instanceof RangeError ? 1 : 0; }}
}});
tree.walk(function (row) {{ seen.push(row.name.toUpperCase().split("").reverse().join("")); }});
text = JSON.stringify(rows.map(function (row) {{ return Object.keys(row).concat(row.tags); }}));
print(errors, seen.length, seen.sort().slice(-3).join("|"), text.length, JSON.parse(text)[0].length);
print(text.match(/"[a-d]\\w+"/g).length, text.split(/[,\\[\\]]+/).length, encodeURIComponent(text).length);
"""


def _ninja_objects(rng: random.Random, size: int) -> str:
    """Sources, an object of each, libraries, programs."""
    # Ninja's own log, of the build that the folder has, is not read.
    lines = [
        "builddir = none",
        "rule cc",
        "  command = cc -O2 $flags -c $in -o $out",
        "  description = CC $out",
        "rule ld",
    ]
    lines += ["  command = ld $in -o $out", "  description = LD $out"]
    for number in range(size):
        lines += [f"build src/{number}.c: phony", f"build obj/{number}.o: cc src/{number}.c", f"  flags = -DN={number}"]
    groups = [list(range(start, min(start + 20, size))) for start in range(0, size, 20)]
    for number, members in enumerate(groups):
        lines.append(f"build lib{number}.so: ld {' '.join(f'obj/{each}.o' for each in members)}")
        if number:
            lines.append(f"build bin/{number}: ld lib{number}.so lib{rng.randrange(number)}.so")
    return "\n".join([*lines, ""])


def _ninja_steps(rng: random.Random, size: int) -> str:
    """Generated files that depend on others in layers, with pools, variables, several outputs and order-only inputs."""
    lines = ["builddir = none", "root = out", "pool few", "  depth = 3"]
    for number in range(12):
        lines += [f"rule step{number}", f"  command = run{number} --with=$x $in > $out && touch ${{root}}/t$y"]
        lines += ["  restat = 1", "  pool = few"] if number % 3 == 0 else []
    for number in range(size):
        ins = sorted({rng.randrange(number) for _ in range(rng.randrange(1, 5))}) if number else []
        used = " ".join(f"$root/a{each}" for each in ins)
        lines.append(
            f"build $root/a{number} $root/deep/$$b{number}: step{number % 12} {used}"
            + (f" | $root/deep/$$b{rng.randrange(number)} || $root/a0" if number > 1 else "")
        )
        lines += [f"  x = {rng.choice(_NAMES)} ${{root}}", f"  y = $x-{number}"]
    return "\n".join([*lines, ""])


def _keywords(rng: random.Random, size: int) -> str:
    """Words for gperf."""
    return "\n".join([*sorted(_identifiers(rng, size, "_")), ""])


def _keyword_structs(rng: random.Random, size: int) -> str:
    """Words with attributes, and declarations around them, for gperf."""
    rows = (f"{name}, {number}, F_{number % 5}" for number, name in enumerate(_identifiers(rng, size, "-")))
    head = "%{\n#include <string.h>\n%}\nstruct entry { const char *name; int number; int flags; };\n%%\n"
    return head + "\n".join([*rows, "%%", "/* the end */", ""])


def _identifiers(rng: random.Random, size: int, joint: str) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < size:
        found[joint.join(rng.choice(_NAMES) for _ in range(rng.randrange(1, 4)))] = None
    return list(found)


def _yaml_records(rng: random.Random, size: int) -> str:
    """A list of flat maps."""
    return "".join(
        f"- name: {rng.choice(_NAMES)}\n  id: {number}\n  size: {rng.random():.4f}\n  on: {number % 3 == 0}\n"
        for number in range(size)
    )


def _yaml_document(rng: random.Random, size: int) -> str:
    """Nested maps with anchors, tags, quotes, block texts and flow lists."""
    parts = ["base: &base {a: 1, b: [x, 'y''s', \"z\\t\\u00e9\"]}\n"]
    for number in range(size):
        parts.append(
            f"part{number}:\n  <<: *base\n  ? [{rng.choice(_NAMES)}, {number}]\n  : !shape {{r: {rng.random():.3f}}}\n"
            f"  text: |\n    {rng.choice(_NAMES)}: {rng.choice(_NAMES)}\n\n      more # no comment\n"
            f"  folded: >-\n    {rng.choice(_NAMES)}\n    {rng.choice(_NAMES)}\n  deep:  # a comment\n"
            f"    - - {number}\n      - ~\n    - {{k: [{', '.join(rng.sample(_NAMES, 4))}]}}\n"
        )
    return "".join(parts)


def _wat_arithmetic(rng: random.Random, size: int) -> str:
    """A module of WebAssembly text: functions of nested arithmetic."""

    def value(depth: int) -> str:
        if depth == 0:
            return rng.choice(["(local.get 0)", "(local.get $b)", f"(i32.const {rng.randrange(-99, 9999)})"])
        operation = rng.choice("add sub mul and or xor shl shr_u lt_s ge_u".split())
        return f"(i32.{operation} {value(depth - 1)} {value(depth - 1)})"

    functions = (
        f'(func $f{n} (export "f{n}") (param i32) (param $b i32) (result i32)\n  {value(5)})\n' for n in range(size)
    )
    return "".join(["(module\n", *functions, ")\n"])


def _wat_control(rng: random.Random, size: int) -> str:
    """A module of WebAssembly text: blocks, tables, memory, globals, floats and calls, in both notations."""
    parts = [
        '(module\n(type $t (func (param f64) (result f64)))\n(import "env" "log" (func $log (param i32)))\n'
        '(memory (export "memory") 2)\n(global $g (mut i64) (i64.const 7))\n'
        f'(data (i32.const 16) "{"".join(rng.choice(_NAMES) + chr(92) + "0a" for _ in range(size))}")\n'
    ]
    for n in range(size):
        parts.append(
            f"(func $f{n} (type $t) (local $i i32) (local f32)\n  i32.const {n}\n  local.set $i\n  block $done\n"
            f"    loop $again\n      local.get $i i32.eqz br_if $done\n      local.get $i call $log\n"
            f"      local.get $i i32.const {rng.randrange(1, 9)} i32.sub local.tee $i\n"
            f"      f32.load offset={4 * rng.randrange(99)} align=4 local.set 2\n"
            f"      (if (i64.gt_s (global.get $g) (i64.const {rng.randrange(1 << 40)}))\n"
            f"        (then (br $again)) (else (nop)))\n    end\n  end\n"
            f"  (call_indirect (type $t) (f64.const {rng.random():.5f}) (i32.const {rng.randrange(size)}))\n"
            f"  local.get 0 f64.add)\n"
        )
    return "".join([*parts, f"(table funcref (elem {' '.join(f'$f{n}' for n in range(size))}))\n)\n"])


def _glsl_fragment(rng: random.Random, size: int) -> str:
    """A fragment shader: functions of vectors."""
    functions = (
        f"vec3 f{n}(vec3 p, float t) {{\n  vec3 q = p * {rng.random():.3f} + vec3(t, {n}.0, 0.5);\n"
        f"  q.xy += sin(q.yx * {rng.random():.3f}) * cos(t);\n  float d = dot(q, p) + length(q.xz);\n"
        f"  return mix(normalize(q), p.zxy, clamp(d, 0.0, 1.0));\n}}\n"
        for n in range(size)
    )
    calls = "".join(f"  c = f{n}(c, uv.x);\n" for n in range(size))
    return _shader("layout(location = 0) in vec2 uv;\nlayout(location = 0) out vec4 colour;\n", functions) + (
        f"void main() {{\n  vec3 c = vec3(uv, 1.0);\n{calls}  colour = vec4(c, 1.0);\n}}\n"
    )


def _glsl_compute(rng: random.Random, size: int) -> str:
    """A compute shader: structs, buffers, integers, loops, switches, shared memory, macros."""
    head = (
        "#define STEP(a, b) ((a) * 31u + (b))\nlayout(local_size_x = 64) in;\n"
        "struct Item { uint key; ivec2 at; mat3 m; };\nshared uint sums[64];\n"
        "layout(std430, binding = 0) buffer Items { Item items[]; };\n"
        "layout(std140, binding = 1) uniform Setting { uint n; } s;\n"
    )
    functions = (
        f"uint g{n}(uint i) {{\n  uint h = STEP(i, {rng.randrange(999)}u);\n  for (uint k = 0u; k < s.n; ++k) {{\n"
        f"    switch (int(h & 3u)) {{\n    case 0: h ^= items[k].key >> {rng.randrange(1, 30)}; break;\n"
        f"    case 1: items[k].at.yx -= ivec2(h, k); continue;\n    default: if (h == {n}u) return k; h = STEP(h, k);\n"
        f"    }}\n    items[k].m[{n % 3}] *= float(h) / {n + 1}.0;\n  }}\n  return h;\n}}\n"
        for n in range(size)
    )
    calls = "".join(f"  sums[i] += g{n}(i);\n  barrier();\n" for n in range(size))
    body = f"  uint i = gl_LocalInvocationIndex;\n  sums[i] = 0u;\n{calls}  items[i].key = sums[63u - i];\n"
    return _shader(head, functions) + f"void main() {{\n{body}}}\n"


def _shader(head: str, functions: Iterator[str]) -> str:
    return "".join(["#version 450\n", head, *functions])


_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda omicron rho sigma upsilon omega apple birch cedar "
    "daisy elder fern grape hazel iris juniper laurel maple nettle olive poppy quince rose sorrel thyme violet willow"
).split()

KINDS: dict[str, Callable[[random.Random, int], str]] = {
    "sql-sums": _sql_sums,
    "sql-texts": _sql_texts,
    "js-numbers": _js_numbers,
    "js-objects": _js_objects,
    "ninja-objects": _ninja_objects,
    "ninja-steps": _ninja_steps,
    "keywords": _keywords,
    "keyword-structs": _keyword_structs,
    "yaml-records": _yaml_records,
    "yaml-document": _yaml_document,
    "wat-arithmetic": _wat_arithmetic,
    "wat-control": _wat_control,
    "glsl-fragment": _glsl_fragment,
    "glsl-compute": _glsl_compute,
}
