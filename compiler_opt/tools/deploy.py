"""Makes a compiler with policies and options of LLVM's passes: `mlgo-clang` and `mlgo-clang++`, for any build.

    compiler_opt deploy --output_dir=$PREFIX                         # a policy that ships with compiler_opt
    compiler_opt deploy --policy_path=$POLICY --output_dir=$PREFIX   # one of your own
    compiler_opt deploy --policy_path=$A --policy_path=$B --output_dir=$PREFIX   # one for size, one for speed
    compiler_opt deploy --policy_path=none --output_dir=$PREFIX      # options alone, without any plugin
    compiler_opt deploy --option_trials=3 --output_dir=$PREFIX       # the compiler tries options on each function
    CC=$PREFIX/bin/mlgo-clang CXX=$PREFIX/bin/mlgo-clang++ cmake -B build -DCMAKE_BUILD_TYPE=MinSizeRel .

docs/deploy.md explains what they do, also when something is missing.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from compiler_opt import pretrained
from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.deploy.driver import NO_PLUGIN
from compiler_opt.deploy.installation import SHARE
from compiler_opt.deploy.policies import DEFAULT_LEVELS, DEFAULT_SPEED_LEVELS, PolicyRequest
from compiler_opt.deploy.versions import next_version, replace_link
from compiler_opt.errors import ConfigError, OutputError
from compiler_opt.files import exclusive_directory
from compiler_opt.llvm.options_plugin import OPTIONS
from compiler_opt.policies.decisions import DEFAULT_BASE
from compiler_opt.report.formatting import count_text
from compiler_opt.rl.unfinished_policy import unfinished_warning
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.options_flag import OptionsFlag
from compiler_opt.tools.shared_flags import NONE

_POLICY_PATH = shared_flags.policies(
    "policy_path",
    "The policy; by default the one for inlining that ships and suits the compilers or, with --decisions, clang's own "
    "heuristic; none for options of LLVM's passes alone. May be repeated: a policy for inlining and one for register "
    "allocation may decide at the same level.",
)
_DECISIONS = flags.DEFINE_multi_string(
    "decisions",
    [],
    "A decision file to replay where call sites match, found by a search from the same policy for inlining (or, "
    "without --policy_path, from clang's own decisions) with a deployed clang. May be repeated.",
)
_OPTIONS = OptionsFlag(
    "Options of LLVM's passes for each optimisation level: {forms}. What a compiler cannot take is left out.",
    has_trials=True,
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder to install into; its bin, lib and share are written.")
_VERSIONED = flags.DEFINE_bool(
    "versioned",
    False,
    "Keep earlier deployments: install into DIR.1, DIR.2 and so on, and make --output_dir=DIR a link to the new one.",
)
_CLANG_PATH = flags.DEFINE_multi_string(
    "clang_path",
    [],
    "The clang to deploy for; by default the newest one installed. May be repeated, once per version; mlgo-clang "
    "without a number runs the first.",
)
_LEVELS = flags.DEFINE_multi_string(
    "levels",
    [],
    "Comma-separated optimisation levels at which the policy decides: those that it was trained for. By default "
    f"{','.join(DEFAULT_LEVELS)} for inlining and {','.join(DEFAULT_SPEED_LEVELS)} for register allocation. With "
    "several policies, once for each --policy_path, in the same order.",
)
_NEVER_WORSE = flags.DEFINE_bool(
    "never_worse",
    False,
    "Compile with and without the policy and keep the smaller object, where policies for size decide; takes twice the "
    "time.",
)
_NEVER_WORSE_ABOVE_KB = flags.DEFINE_integer(
    "never_worse_above_kb",
    None,
    "The same for files alone whose object has more text than this, in kB; only these take twice the time.",
    lower_bound=0,
    upper_bound=10**9,
)
_MARGIN = shared_flags.margin("Deploy")
_STRICT = flags.DEFINE_bool("strict", False, "Fail, instead of compiling without a policy, if a part is missing.")

_RELATIVE_CLANG = flags.DEFINE_bool(
    "relative_clang",
    False,
    "Find the compilers relative to --output_dir, and nowhere else: for a toolchain that is moved as a whole.",
)
_PIN_CLANG = flags.DEFINE_bool(
    "pin_clang", False, "Use the policies only with the exact versions of the compilers, such as 22.1.2."
)


@entry_point.command
def entry() -> None:
    requests = _requests(_POLICY_PATH.value, _LEVELS.value)
    options = _OPTIONS.read()
    for request in requests:
        if request.folder is not None and (warning := unfinished_warning(request.folder)):
            entry_point.warn(warning)
    output = next_version(_OUTPUT_DIR.value) if _VERSIONED.value else _OUTPUT_DIR.value
    with exclusive_directory(output, "--output_dir"):
        deployment = deploy(
            requests,
            output,
            _CLANG_PATH.value,
            decisions=[Path(name) for name in _DECISIONS.value],
            options=options,
            option_trials=_OPTIONS.trials,
            pass_plugin=_OPTIONS.pass_plugin,
            never_worse=_NEVER_WORSE.value or _NEVER_WORSE_ABOVE_KB.value is not None,
            never_worse_above_kb=_NEVER_WORSE_ABOVE_KB.value or 0,
            strict=_STRICT.value,
            relative_clang=_RELATIVE_CLANG.value,
            pin_clang=_PIN_CLANG.value,
            margin=_MARGIN.value,
        )
    for compiler in deployment.compilers:
        _OPTIONS.warn(compiler.options, f"clang-{compiler.major}: ")
    if _VERSIONED.value:
        _switch(_OUTPUT_DIR.value, output)
        deployment = dataclasses.replace(deployment, prefix=_OUTPUT_DIR.value)
    print(_summary(deployment))


def _requests(policies: Sequence[str], levels: Sequence[str]) -> list[PolicyRequest]:
    if NONE in policies and len(policies) > 1:
        raise ConfigError(
            f"--policy_path: expected {NONE} alone, found {', '.join(policies)}; leave it or the others out"
        )
    named = [name for name in policies if name != NONE]
    folders: list[Path | None] = [pretrained.folder(name) for name in named] or ([] if policies else [None])
    if len(levels) not in (0, len(folders)):
        numbers = {0: "none", 1: "at most one"}
        expected = numbers.get(len(folders), f"none, or one for each of the {len(folders)} policies")
        raise ConfigError(
            f"--levels: expected {expected}, found {len(levels)}; separate the levels of a policy by commas"
        )
    split = [[level for level in text.split(",") if level] for text in levels]
    return [PolicyRequest(folder, given) for folder, given in itertools.zip_longest(folders, split)]


def _switch(link: Path, version: Path) -> None:
    earlier = f", was {link.readlink()}" if link.is_symlink() else ""
    try:
        replace_link(link, version.name)
    except OSError as error:
        raise OutputError(f"{link}: cannot be written: {error.strerror}; {version} is complete") from error
    print(f"{link}: {version.name}{earlier}")


def _summary(deployment: Deployment) -> str:
    lines = [f"{deployment.prefix}:"]
    for policy in deployment.policies:
        who = "no policy" if policy.checksum == DEFAULT_BASE else f"policy {policy.origin} {policy.checksum[:16]}"
        if policy.kind == OPTIONS:
            who = f"by function, with trials of {count_text(_OPTIONS.trials, 'set')}"
        lines.append(f"  {policy.problem}: {who}, at -{', -'.join(policy.levels)}")
    for compiler in deployment.compilers:
        major = compiler.major
        plugins = [policy.plugins[major] for policy in deployment.policies if policy.plugins[major] != NO_PLUGIN]
        libraries = [f"lib/{plugin.library.name}" for plugin in plugins]
        libraries += [f"lib/{each.decisions.name} ({each.about_decisions})" for each in plugins if each.decisions.name]
        only = f" ({compiler.only_version} only)" if compiler.only_version else ""
        paths = ", ".join([f"{compiler.clang}{only}", *libraries])
        lines.append(f"  bin/mlgo-clang-{major}, bin/mlgo-clang++-{major}: {paths}")
        counts = [f"{len(options)} at -{level}" for level, options in compiler.options.sets.levels.items()]
        if counts:
            lines.append(f"  options of LLVM's passes for clang-{major}: {', '.join(counts)}")
    lines.append(f"  bin/mlgo-clang, bin/mlgo-clang++: the same as for clang-{next(iter(deployment.clangs))}")
    if deployment.never_worse:
        above = f", above {deployment.never_worse_above_kb} kB of text" if deployment.never_worse_above_kb else ""
        lines.append(f"  never worse{above}: compiles both ways and keeps the smaller object, in about twice the time")
    if deployment.strict:
        lines.append("  strict: fails instead of compiling without a policy")
    c, cxx = (deployment.driver(cpp=cpp).absolute() for cpp in (False, True))
    lines.append(f"to use it: CC={c} CXX={cxx}")
    lines.append(f"with CMake: -DCMAKE_TOOLCHAIN_FILE={deployment.prefix.absolute() / SHARE / 'toolchain.cmake'}")
    return "\n".join(lines)


if __name__ == "__main__":
    entry()
