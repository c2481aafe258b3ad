"""The commands of README and docs exist as they are written there; so does what they refer to."""

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from compiler_opt.commands import VERBS, verb_of
from compiler_opt.commands import module_of as module_of_verb
from compiler_opt.tools import gin_settings
from tests import programs

ROOT = Path(__file__).parents[1]
README, TRAINING = (ROOT / "README.md").read_text(), (ROOT / "docs/training.md").read_text()
"""The pages that a reader follows from top to bottom."""
DOCUMENTS = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))

FOREIGN = {"cmake", "make", "source", "tensorboard", "./configure"}
"""Programs in the README's commands that are none of ours; `./configure` is that of the user's project."""
SHELL_VARIABLES = {"HOME", "PWD"}
LONGEST_PAGE = 1500
"""Words, as `wc -w` counts them."""
LONG_PAGES = {"results.md"}
"""Tables that are made of records."""


def shell_lines(text: str) -> list[str]:
    """The lines of a page's shell blocks, in order, continuation lines joined, without comments."""
    blocks = re.findall(r"^```shell\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if shlex.split(line, comments=True)]


def commands(text: str = README + TRAINING) -> list[list[str]]:
    """The words of a page's commands, in shell blocks and in running text, without settings of the environment."""
    inline = re.findall(r"`((?:python3 -m|tensorboard|\./|compiler_opt )[^`]*)`", " ".join(text.split()))
    found = []
    for line in [*shell_lines(text), *inline]:
        words = shlex.split(line, comments=True)
        while words and re.match(r"\w+=", words[0]):
            del words[0]
        if words:
            found.append(words)
    return found


def commands_of_documents() -> list[list[str]]:
    """Our Python commands in all documents, once each."""
    found = [words for name in DOCUMENTS for words in commands((ROOT / name).read_text())]
    ours = [words for words in found if re.match(r"(compiler_opt|studies)\.", module_of(words) or "")]
    return list({" ".join(words): words for words in ours}.values())


def module_of(words: list[str]) -> str | None:
    """The Python module of ours that a command runs."""
    if words[0] in ("python3", "python"):
        return words[2] if words[1] == "-m" else ".".join(Path(words[1]).with_suffix("").parts)
    if words[0] != "compiler_opt" or words[1] == "VERB":
        return None
    verb = verb_of(words[1:])
    assert verb is not None, f"no verb: {' '.join(words)}"
    return module_of_verb(verb)


def test_there_are_commands() -> None:
    modules = {module_of(words) for words in commands()}
    assert {
        f"compiler_opt.{name}" for name in ("tools.train_bc", "tools.train_locally", "tools.generate_vocab")
    } <= modules
    assert ["./run_demo.sh"] in commands() and ["./run_tests.sh"] in commands()


@pytest.mark.parametrize("words", commands(), ids=lambda words: " ".join(words)[:60])
def test_command_exists(words: list[str]) -> None:
    module = module_of(words)
    if module is not None:
        path = ROOT / Path(*module.split(".")).with_suffix(".py")
        assert path.is_file()
        verb = module.replace(".rl.", ".tools.").removeprefix("compiler_opt.tools.").replace(".", " ")
        assert verb in VERBS, "every command is a verb, too"
    elif words[0] not in FOREIGN:
        assert words[0].startswith("./")
        assert (ROOT / words[0]).stat().st_mode & 0o100


@pytest.mark.parametrize("words", commands_of_documents(), ids=" ".join)
def test_flags_are_accepted(words: list[str]) -> None:
    flags = [word for word in words if word.startswith("--")]
    if flags and "..." not in words:
        checked = programs.run(module_of(words) or "", *flags, "--only_check_args")
        assert checked.returncode == 0, checked.stderr
    for file in [flag.partition("=")[2] for flag in flags if flag.startswith("--gin_files=gin_configs")]:
        assert (ROOT / file).is_file()


def test_the_readme_is_short() -> None:
    assert len(README.split()) < 1500
    assert "## Requirements" in README.splitlines()[:40]


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_pages_are_short(page: str) -> None:
    words = len((ROOT / "docs" / page).read_text().split())
    assert words <= LONGEST_PAGE or page in LONG_PAGES, f"{page} has {words} words: cut it, or make two pages of it"


def test_contents_list_every_page() -> None:
    listed = set(re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs/contents.md").read_text()))
    assert listed | {"contents.md"} == {path.name for path in (ROOT / "docs").glob("*.md")}


def test_paths_of_the_glossary_exist() -> None:
    """Relative to the package or to the repository."""
    rows = [line for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("|")]
    paths = [path for row in rows for path in re.findall(r"`(\w+/[\w./]*)`", row)]
    assert len(paths) > 50
    for path in paths:
        assert (ROOT / "compiler_opt" / path).exists() or (ROOT / path).exists(), path


def test_benchmarks_and_studies_exist() -> None:
    for document in (*DOCUMENTS, "CHANGELOG.md"):
        for module in re.findall(r"\b(?:benchmarks|studies)\.[a-z]\w*", (ROOT / document).read_text()):
            assert (ROOT / Path(*module.split(".")).with_suffix(".py")).is_file(), f"{document} names {module}"


def test_options_of_the_demo() -> None:
    known = set(re.findall(r"^    (--\w+)\)", (ROOT / "run_demo.sh").read_text(), re.MULTILINE))
    paragraphs = [text for text in README.split("\n\n") if text.startswith("`./run_demo.sh`")]
    named = set(re.findall(r"`(--\w+)", " ".join(paragraphs)))
    assert named and named <= known


def test_gin_files_and_bindings_exist() -> None:
    words = [word for command in commands() for word in command]
    files = [word.split("=", 1)[1] for word in words if word.startswith("--gin_files=")]
    bindings = [word.split("=", 1)[1] for word in words if word.startswith("--gin_bindings=")]
    assert files and bindings
    for file in files:
        assert (ROOT / file).is_file()
    for binding in bindings:
        name, _, field = binding.split("=")[0].partition(".")
        classes = [table()[name] for table in (gin_settings.of_cloning, gin_settings.of_training) if name in table()]
        assert field in {entry.name for config in classes for entry in dataclasses.fields(config)}


@pytest.mark.parametrize("page", [README, TRAINING], ids=["README", "training"])
def test_variables_are_set_before_they_are_used(page: str) -> None:
    known = set(SHELL_VARIABLES)
    for line in shell_lines(page):
        code = line.split(" # ")[0]
        assert set(re.findall(r"\$(\w+)", code)) <= known
        assert "=~" not in code.replace(f"{code.split('=')[0]}=~", "", 1), "a shell expands ~ in assignments only"
        if match := re.match(r"(\w+)=\S+$|(\w+)=\"[^\"]*\"$", code.strip()):
            known.add(match[1] or match[2])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text()):
        if not target.startswith("https://"):
            file, _, anchor = target.partition("#")
            page = path.parent / file if file else path
            assert page.exists(), target
            assert not anchor or anchor in anchors(page), target


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_code_map_knows_the_files() -> None:
    """Every module that the code map names is there, and every package is on one of its pages."""
    text = "".join(page.read_text() for page in (ROOT / "docs").glob("code_map*.md"))
    names = {path.name for folder in ("compiler_opt", "tests", "studies") for path in (ROOT / folder).rglob("*")}
    names |= {path.name for path in ROOT.iterdir()}
    for name in re.findall(r"`(?:[\w/]+/)?([a-z]\w*\.(?:py|yaml))`", text):
        assert name in names, name
    for package in (ROOT / "compiler_opt").rglob("*.py"):
        folder = package.parent.relative_to(ROOT / "compiler_opt").as_posix()
        if folder != ".":
            assert f"`{folder}/" in text, f"{folder} is not on the map"
