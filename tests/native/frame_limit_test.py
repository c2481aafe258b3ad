"""Policies do not put large variables into the frames of recursive functions."""

import subprocess
from pathlib import Path

import pytest

from compiler_opt.llvm.inliner_plugin import environment, inliner_plugin
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.spaces.native import native_blob
from tests.deploy.sources import save_policy

SOURCE = """
int show(char *, int);
static int helper(int kind, int x) {
  char buffer[BYTES];
  show(buffer, kind + x);
  return show(buffer, x) + show(buffer, kind);
}
struct tree { struct tree *left, *right; int value; };
int itself(const struct tree *t) {
  if (!t) return 0;
  if (t->value < 0) return helper(1, t->value);
  return itself(t->left) + helper(2, t->value) + itself(t->right);
}
int there(const struct tree *t);
__attribute__((noinline)) static int back(const struct tree *t) { return there(t->left) + helper(3, t->value); }
int there(const struct tree *t) { return t ? back(t) * helper(4, t->value) : 0; }
int straight(const struct tree *t) { return helper(5, t->value) + helper(6, t->value); }
"""


@pytest.mark.parametrize("num_bytes", [400, 16])
def test_recursive_functions(toolchain: Toolchain, tmp_path: Path, num_bytes: int) -> None:
    (tmp_path / "walk.c").write_text(SOURCE.replace("BYTES", str(num_bytes)))
    blob = tmp_path / "network.mlgo"
    blob.write_bytes(native_blob(save_policy(tmp_path)))
    frames = {}
    for name, options in {"plain": [], "policy": [load_option(inliner_plugin(toolchain))]}.items():
        command = [str(toolchain.clang), *options, "-Oz", "-fstack-usage", "-c", "walk.c", "-o", f"{name}.o"]
        subprocess.run(command, cwd=tmp_path, env=environment(policy=blob), check=True)
        lines = (tmp_path / f"{name}.su").read_text().splitlines()
        frames[name] = {line.split("\t")[0].split(":")[-1]: int(line.split("\t")[1]) for line in lines}
    plain, policy = frames["plain"], frames["policy"]
    assert plain["helper"] > num_bytes
    # The policy inlines every helper, but for large ones into recursive functions.
    assert policy["straight"] > num_bytes
    assert ("helper" in policy) == (num_bytes == 400)
    assert all(policy[name] < 128 for name in ("itself", "there", "back") if name in policy)
