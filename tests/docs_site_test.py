"""The documents build as a site (mkdocs.yml), all of whose links lead somewhere; a broken one fails the build."""

import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
CONFIG, HOOKS = "mkdocs.yml", "mkdocs_hooks.py"


def build(root: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", f"--config-file={root / CONFIG}", f"--site-dir={site}"],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # Material's notice about its own future
        capture_output=True,
        text=True,
        check=False,
    )


class Links(HTMLParser):
    """The anchors of a page, and what it links to or shows."""

    def __init__(self, page: Path):
        super().__init__()
        self.anchors, self.targets = {""}, set[str]()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.targets.add(value)


@pytest.mark.first
def test_all_links_of_the_site_lead_somewhere(tmp_path: Path) -> None:
    built = build(ROOT, tmp_path)
    assert built.returncode == 0, built.stderr
    # 404.html is shown at any path, so it cannot have relative links.
    links = {page: Links(page) for page in tmp_path.rglob("*.html") if page.name != "404.html"}
    assert {page.stem for page in links} >= {page.stem for page in (ROOT / "docs").glob("*.md")} | {"index"}
    reference = tmp_path / "reference" / "rollouts.html"
    assert "compiler_opt.rollout" in links[reference].anchors and "measures the object" in reference.read_text()
    for page, there in links.items():
        for target in map(urlsplit, there.targets):
            if not target.scheme and not target.netloc:
                file = (page.parent / unquote(target.path)).resolve() if target.path else page
                assert file.is_file() and file.is_relative_to(tmp_path), f"{page.name}: {target.geturl()}"
                assert file not in links or unquote(target.fragment) in links[file].anchors, target.geturl()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository, built as this one is: a README and a page with links of all kinds."""
    root = tmp_path / "tree"
    (root / "docs" / "data").mkdir(parents=True)
    (root / "src").mkdir()
    shutil.copy(ROOT / HOOKS, root)
    (root / CONFIG).write_text((ROOT / CONFIG).read_text().partition("\nnav:")[0] + "\nnav: [index.md, page.md]\n")
    (root / "README.md").write_text("# Title\n\n## First steps\n\n[The page](docs/page.md#on-x-and-y)\n")
    (root / "src/code.py").write_text("x = 1\n")
    (root / "docs/page.md").write_text(
        "# Page\n\n## On `x`, and Y\n\n[steps](../README.md#first-steps), [the code](../src/code.py), "
        "[the data](data), [itself](#on-x-and-y)\n\n```cpp\nauto f = [](page) { return 1; };\n```\n"
    )
    return root


def test_links_out_of_the_documents(tree: Path, tmp_path: Path) -> None:
    built = build(tree, tmp_path / "site")
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site/src/code.py").read_text() == "x = 1\n"
    page = (tmp_path / "site/page.html").read_text()
    assert 'href="index.html#first-steps"' in page and 'href="src/code.py"' in page
    assert "the data (<code>docs/data</code>)" in page


@pytest.mark.ci
@pytest.mark.parametrize(
    ("link", "reported"),
    [
        ("missing.md", "missing.md"),
        ("#no-heading", "#no-heading"),
        ("../README.md#no-heading", "index.md#no-heading"),
        ("../src/missing.py", "../src/missing.py"),
        ("/page.md", "/page.md"),
    ],
)
def test_a_broken_link_fails_the_build(link: str, reported: str, tree: Path, tmp_path: Path) -> None:
    with (tree / "docs/page.md").open("a") as page:
        page.write(f"\n[broken]({link})\n")
    built = build(tree, tmp_path / "site")
    assert built.returncode != 0
    [warning] = [line for line in built.stderr.splitlines() if line.startswith("WARNING")]
    assert "'page.md'" in warning and f"'{reported}'" in warning


@pytest.mark.ci
def test_a_page_outside_of_the_navigation_fails_the_build(tree: Path, tmp_path: Path) -> None:
    (tree / "docs/forgotten.md").write_text("# Forgotten\n")
    built = build(tree, tmp_path / "site")
    assert built.returncode != 0 and "forgotten.md" in built.stderr
