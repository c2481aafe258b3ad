"""Makes a compiler that runs a policy: `mlgo-clang` and `mlgo-clang++`, for any build that uses clang.

    python -m compiler_opt.tools.deploy --output=$PREFIX                    # a policy that ships with compiler_opt
    python -m compiler_opt.tools.deploy --policy=$POLICY --output=$PREFIX   # one of your own
    CC=$PREFIX/bin/mlgo-clang CXX=$PREFIX/bin/mlgo-clang++ cmake -B build -DCMAKE_BUILD_TYPE=MinSizeRel .

docs/deploy.md explains what they do, also when something is missing.
"""

import dataclasses
from pathlib import Path

from absl import flags

from compiler_opt import pretrained
from compiler_opt.deploy.deployment import DEFAULT_LEVELS, DEFAULT_SPEED_LEVELS, SHARE, Deployment, deploy
from compiler_opt.deploy.versions import next_version, replace_link
from compiler_opt.errors import OutputError
from compiler_opt.files import exclusive_directory
from compiler_opt.policies.decisions import DEFAULT_BASE
from compiler_opt.tools import entry_point, shared_flags

_POLICY = shared_flags.policy(
    "policy",
    "The policy; by default the one for inlining that ships and suits the compilers or, with --decisions, clang's own "
    "heuristic.",
)
_DECISIONS = flags.DEFINE_multi_string(
    "decisions",
    [],
    "A decision file to replay where call sites match, found by a search from the same policy (or, without --policy, "
    "from clang's own decisions) with a deployed clang. May be repeated.",
)
_OUTPUT = shared_flags.required_path("output", "Folder to install into; its bin, lib and share are written.")
_VERSIONED = flags.DEFINE_bool(
    "versioned",
    False,
    "Keep earlier deployments: install into OUTPUT.1, OUTPUT.2 and so on, and make --output a link to the new one.",
)
_CLANG_PATH = flags.DEFINE_multi_string(
    "clang_path",
    [],
    "The clang to deploy for; by default the newest one installed. May be repeated, once per version; mlgo-clang "
    "without a number runs the first.",
)
_LEVELS = flags.DEFINE_list(
    "levels",
    None,
    "Comma-separated optimisation levels at which the policy decides: those that it was trained for. By default "
    f"{','.join(DEFAULT_LEVELS)} for inlining and {','.join(DEFAULT_SPEED_LEVELS)} for register allocation.",
)
_NEVER_WORSE = flags.DEFINE_bool(
    "never_worse", False, "Compile with and without the policy and keep the smaller object; takes twice the time."
)
_NEVER_WORSE_ABOVE_KB = flags.DEFINE_integer(
    "never_worse_above_kb",
    None,
    "The same for files alone whose object has more text than this, in kB; only these take twice the time.",
    lower_bound=0,
    upper_bound=10**9,
)
_MARGIN = shared_flags.margin("Deploy")
_STRICT = flags.DEFINE_bool("strict", False, "Fail, instead of compiling without the policy, if a part is missing.")

_RELATIVE_CLANG = flags.DEFINE_bool(
    "relative_clang",
    False,
    "Find the compilers relative to --output, and nowhere else: for a toolchain that is moved as a whole.",
)
_PIN_CLANG = flags.DEFINE_bool(
    "pin_clang", False, "Use the policy only with the exact versions of the compilers, such as 22.1.2."
)


@entry_point.command
def entry() -> None:
    output = next_version(_OUTPUT.value) if _VERSIONED.value else _OUTPUT.value
    with exclusive_directory(output, "--output"):
        deployment = deploy(
            pretrained.folder(_POLICY.value) if _POLICY.value is not None else None,
            output,
            _CLANG_PATH.value,
            decisions=[Path(name) for name in _DECISIONS.value],
            levels=_LEVELS.value,
            never_worse=_NEVER_WORSE.value or _NEVER_WORSE_ABOVE_KB.value is not None,
            never_worse_above_kb=_NEVER_WORSE_ABOVE_KB.value or 0,
            strict=_STRICT.value,
            relative_clang=_RELATIVE_CLANG.value,
            pin_clang=_PIN_CLANG.value,
            margin=_MARGIN.value,
        )
    if _VERSIONED.value:
        _switch(_OUTPUT.value, output)
        deployment = dataclasses.replace(deployment, prefix=_OUTPUT.value)
    print(_summary(deployment))


def _switch(link: Path, version: Path) -> None:
    earlier = f", was {link.readlink()}" if link.is_symlink() else ""
    try:
        replace_link(link, version.name)
    except OSError as error:
        raise OutputError(f"{link}: cannot be written: {error.strerror}; {version} is complete") from error
    print(f"{link}: {version.name}{earlier}")


def _summary(deployment: Deployment) -> str:
    checksum = deployment.policy_checksum
    policy = "no policy" if checksum == DEFAULT_BASE else f"policy {deployment.policy_name} {checksum[:16]}"
    lines = [f"{deployment.prefix}: {' '.join(policy.split())}, at -{', -'.join(deployment.levels)}"]
    for compiler in deployment.compilers:
        major, lib = compiler.major, f"lib/{compiler.plugin.name}"
        if compiler.decisions.name:
            lib += f", lib/{compiler.decisions.name} ({compiler.about_decisions})"
        only = f" ({compiler.only_version} only)" if compiler.only_version else ""
        lines.append(f"  bin/mlgo-clang-{major}, bin/mlgo-clang++-{major}: {compiler.clang}{only}, {lib}")
    lines.append(f"  bin/mlgo-clang, bin/mlgo-clang++: the same as for clang-{next(iter(deployment.clangs))}")
    if deployment.never_worse:
        above = f", above {deployment.never_worse_above_kb} kB of text" if deployment.never_worse_above_kb else ""
        lines.append(f"  never worse{above}: compiles both ways and keeps the smaller object, in about twice the time")
    if deployment.strict:
        lines.append("  strict: fails instead of compiling without the policy")
    c, cxx = (deployment.driver(cpp=cpp).absolute() for cpp in (False, True))
    lines.append(f"to use it: CC={c} CXX={cxx}")
    lines.append(f"with CMake: -DCMAKE_TOOLCHAIN_FILE={deployment.prefix.absolute() / SHARE / 'toolchain.cmake'}")
    return "\n".join(lines)


if __name__ == "__main__":
    entry()
