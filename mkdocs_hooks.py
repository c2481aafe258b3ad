"""Adapts the documents to the site that MkDocs builds of them (mkdocs.yml): they are written for a repository browser.

README.md is the index page. The other files of the repository to which a page links are there, too, at their paths:
Markdown as pages, others as they are. A folder has no page, so a link to one becomes its path.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent
INDEX = "README.md"
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^][]*)\]\((?P<path>[^)#:]+)(?P<anchor>#[^)]*)?\)")
"""A link to a file; what has a colon is a URL."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the README and, repeatedly, what the pages link to outside of docs/."""
    added = [INDEX]
    for page in files.documentation_pages():
        added += linked_outside(f"docs/{page.src_uri}", page.content_string)
    for path in added:
        uri = uri_of(path)
        if uri in files.src_uris or not (ROOT / path).is_file():
            continue
        if path.endswith(".md"):
            content = (ROOT / path).read_text()
            files.append(File.generated(config, uri, content=content))
            added += linked_outside(path, content)
        else:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Leads the links of a page to where their targets are in the site."""
    source = source_of(page.file)

    def adapted(link: re.Match[str]) -> str:
        path = target_of(source, link["path"])
        if (ROOT / path).is_dir():
            return link["text"] if path in link["text"] else f"{link['text']} (`{path}`)"
        if not (ROOT / path).exists():
            return link[0]  # Code that looks like a link, or a broken one, which MkDocs reports.
        uri = posixpath.relpath(uri_of(path), posixpath.dirname(page.file.src_uri) or ".")
        return f"{link['image']}[{link['text']}]({uri}{link['anchor'] or ''})"

    return LINK.sub(adapted, markdown)


def source_of(file: File) -> str:
    """The path of a page in the repository."""
    if file.generated_by is None:
        return f"docs/{file.src_uri}"
    return INDEX if file.src_uri == "index.md" else file.src_uri


def target_of(source: str, link: str) -> str:
    """The path in the repository of what a file of it links to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def uri_of(path: str) -> str:
    """Where the site has a file of the repository, relative to the site's root."""
    return "index.md" if path == INDEX else path.removeprefix("docs/")


def linked_outside(source: str, markdown: str) -> list[str]:
    """The paths in the repository of a file's links that leave docs/."""
    targets = [target_of(source, link["path"]) for link in LINK.finditer(markdown)]
    return [target for target in targets if not target.startswith("docs/")]
