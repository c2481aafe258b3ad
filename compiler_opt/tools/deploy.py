"""Makes a compiler of a policy: `mlgo-clang` and `mlgo-clang++`, for any build that uses clang.

    python -m compiler_opt.tools.deploy --policy=$POLICY --output=$PREFIX
    CC=$PREFIX/bin/mlgo-clang CXX=$PREFIX/bin/mlgo-clang++ cmake -B build -DCMAKE_BUILD_TYPE=MinSizeRel .

docs/deploy.md tells what they do, and what when something is missing.
"""

from pathlib import Path

from absl import flags

from compiler_opt.deploy.deployment import DEFAULT_LEVELS, DEFAULT_SPEED_LEVELS, Deployment, deploy
from compiler_opt.files import exclusive_directory
from compiler_opt.tools import entry_point

_POLICY = flags.DEFINE_string("policy", None, "Folder of a trained policy.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "The prefix: gets bin, lib and share.", required=True)
_CLANG_PATH = flags.DEFINE_multi_string(
    "clang_path",
    [],
    "A compiler to deploy for; repeated, one of each version, the first being the one of mlgo-clang without a number. "
    "By default the newest that is installed.",
)
_LEVELS = flags.DEFINE_list(
    "levels",
    None,
    "Optimisation levels at which the policy decides: those that it was trained for. By default "
    f"{','.join(DEFAULT_LEVELS)} for inlining and {','.join(DEFAULT_SPEED_LEVELS)} for the register allocator.",
)
_NEVER_WORSE = flags.DEFINE_bool(
    "never_worse", False, "Compile with and without the policy and keep the smaller object; takes twice the time."
)
_STRICT = flags.DEFINE_bool("strict", False, "Fail rather than compile without the policy when something is missing.")


@entry_point.command
def entry() -> None:
    output = Path(_OUTPUT.value)
    with exclusive_directory(output, "--output"):
        deployment = deploy(
            Path(_POLICY.value),
            output,
            _CLANG_PATH.value,
            levels=_LEVELS.value,
            never_worse=_NEVER_WORSE.value,
            strict=_STRICT.value,
        )
    print(_summary(deployment))


def _summary(deployment: Deployment) -> str:
    lines = [f"{deployment.prefix}: policy {deployment.policy_checksum[:16]}, at -{', -'.join(deployment.levels)}"]
    for major, clang in deployment.clangs.items():
        lines.append(
            f"  bin/mlgo-clang-{major}, bin/mlgo-clang++-{major}: {clang}, lib/{deployment.plugin(major).name}"
        )
    lines.append(f"  bin/mlgo-clang, bin/mlgo-clang++: those of clang-{next(iter(deployment.clangs))}")
    if deployment.never_worse:
        lines.append("  never worse: compiles both ways and keeps the smaller object, in about twice the time")
    if deployment.strict:
        lines.append("  strict: fails rather than compile without the policy")
    drivers = [deployment.driver(cpp=cpp).absolute() for cpp in (False, True)]
    lines.append(f"use it by: CC={drivers[0]} CXX={drivers[1]}")
    return "\n".join(lines)


if __name__ == "__main__":
    entry()
