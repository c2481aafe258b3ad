"""Gymnasium environments: an episode is the compilation of a module, a step a decision of the compiler.

    env = gymnasium.make("compiler_opt/Inlining-v0", corpus="corpus", clang_path="clang-22")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

Importing this module registers an id for each installed problem, whose arguments are those of `compiler_env`:
`compiler_opt/Inlining-v0`, `compiler_opt/RegallocEviction-v0`, `compiler_opt/RegallocPriority-v0`.

Needs the package gymnasium (`pip install 'compiler_opt[gym]'`); docs/gymnasium.md describes it.
"""

import importlib.util
import re

if importlib.util.find_spec("gymnasium") is None:
    raise ImportError("compiler_opt.env needs the package gymnasium: pip install 'compiler_opt[gym]'")

import gymnasium

from compiler_opt import problem
from compiler_opt.env.environment import CompilerEnv, EnvSettings, compiler_env

__all__ = ["CompilerEnv", "EnvSettings", "compiler_env"]

for _name in problem.names():
    gymnasium.register(
        f"compiler_opt/{re.sub(r'[^A-Za-z0-9]', '', _name.title())}-v0",
        "compiler_opt.env.environment:compiler_env",
        kwargs={"compile_task": _name},
    )
