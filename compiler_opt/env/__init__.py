"""Gymnasium environments: an episode is the compilation of a module, a step a decision of the compiler.

    env = compiler_env(Path("corpus"), clang_path="clang-22")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

Needs the package gymnasium (`pip install 'compiler_opt[gym]'`); docs/gymnasium.md describes it.
"""

import importlib.util

if importlib.util.find_spec("gymnasium") is None:
    raise ImportError("compiler_opt.env needs the package gymnasium: pip install 'compiler_opt[gym]'")

from compiler_opt.env.environment import CompilerEnv, EnvSettings, compiler_env

__all__ = ["CompilerEnv", "EnvSettings", "compiler_env"]
