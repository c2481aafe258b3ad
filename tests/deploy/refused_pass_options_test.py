"""Options of LLVM's passes that are not deployed: a compiler cannot take them, or whoever deploys made a mistake."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from compiler_opt.deploy.deployment import deploy
from compiler_opt.errors import ConfigError
from compiler_opt.pass_options.sets import OptionSets
from tests import programs
from tests.deploy.conftest import Compiler, run
from tests.deploy.sources import JUMPS

BAD: Mapping[int, Mapping[str, str]] = {
    22: {
        "-emit-bb-hash": "it makes the compiler fail: exit status 139",
        "-apply-ext-tsp-for-size": "",
    },
    19: {
        "-use-constant-fp-for-fixed-length-splat": "it makes the compiler fail: ",
        "-apply-ext-tsp-for-size": "the compiler has no such option",
    },
}
BAD_WITH_BOTH = {
    f"{JUMPS}=9": "it is given twice; the first counts",
    "-no-such-option": "the compiler has no such option",
    "-polly-dot": "it writes other files: 'scops.mean.dot scops.reverse.dot scops.scan.dot'",
    "-print-before-all": "it prints '",
    "-help": "it prints '",
    "-info-output-file=name": "it takes text, which may name a file",
    "-unroll-threshold=many": "expected a value of kind integer",
    "-optimize-regalloc=false": "together with -regalloc=greedy, it makes the compiler fail: exit status",
}


def test_options_that_a_compiler_cannot_take(compiler: Compiler, tmp_path: Path) -> None:
    """Each is left out by name with its reason, and the others are used."""
    bad = {**BAD[compiler.major], **BAD_WITH_BOTH}
    content = {"format": 1, "levels": {"Oz": [f"{JUMPS}=8", "-regalloc=greedy", *bad]}}
    (tmp_path / "options.json").write_text(json.dumps(content))
    result = programs.run(
        "compiler_opt/tools/deploy.py",
        f"--output_dir={tmp_path / 'out'}",
        "--policy_path=none",
        f"--options={tmp_path / 'options.json'}",
        f"--clang_path={compiler.clang}",
    )
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    expected = {option: reason for option, reason in bad.items() if reason}
    assert len(lines) == len(expected)
    for option, reason in expected.items():
        start = f"warning: --options: clang-{compiler.major}: {option} is left out at -Oz: {reason}"
        assert any(line.startswith(start) for line in lines), (start, lines)
    info = run([str(tmp_path / "out/bin/mlgo-clang"), "--mlgo-info"], tmp_path).stdout
    kept = [option for option, reason in bad.items() if not reason]
    assert info.startswith(f"options: -Oz: {' '.join([f'{JUMPS}=8', '-regalloc=greedy', *kept])}\n")
    [described] = json.loads((tmp_path / "out/share/mlgo/deployment.json").read_text())["compilers"]
    assert {each["option"] for each in described["options_left_out"]} == set(expected)


def test_mistakes(policy_dir: Path, clang_path: str, tmp_path: Path) -> None:
    command = ("compiler_opt/tools/deploy.py", f"--output_dir={tmp_path / 'out'}", f"--clang_path={clang_path}")
    (tmp_path / "bad.json").write_text('{"format": 1, "levels": {"Oz": ["disable-lsr"]}}')
    (tmp_path / "none.json").write_text('{"format": 1, "levels": {"Oz": ["-no-such-option"]}}')
    cases = {
        (
            "--policy_path=none",
            f"--options={tmp_path / 'none.json'}",
        ): "expected an option that the compiler takes, found none (-no-such-option is left out at -Oz: ",
        (f"--options={tmp_path / 'bad.json'}",): "bad.json: Oz: expected an option of LLVM's such as -enable-load-pre=",
        ("--options=missing.json",): "missing.json: no such file; docs/pass_options.md",
        (
            "--policy_path=none",
            "--options=none",
        ): "--policy_path: expected a policy, or options without one (--options), found",
        ("--policy_path=none", "--policy_path=x"): "--policy_path: expected none alone, found none, x; leave",
        ("--policy_path=none", "--levels=Oz"): "--levels: expected none, found 1;",
        ("--policy_path=none", "--pin_clang"): "--pin_clang: expected a policy or trials, whose plugin checks",
    }
    for arguments, message in cases.items():
        result = programs.run(*command, *arguments)
        assert (result.returncode, result.stdout) == (2, ""), result.stderr
        assert message in result.stderr and len(result.stderr.splitlines()) == 1
    sets = OptionSets({"Oz": ("-disable-lsr",)})
    with pytest.raises(ConfigError, match=r"--decisions: expected one policy for inlining.*found none"):
        deploy([], tmp_path / "out", [clang_path], options=sets, decisions=[tmp_path / "x"])
    assert not (tmp_path / "out").exists()
