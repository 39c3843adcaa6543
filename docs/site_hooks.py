"""What MkDocs does besides rendering `docs/`: pages that live elsewhere in the project, and a check of the result.

Documents link to each other as files, so that the links also work in a clone. On the site some files are pages under
another name, the notebook is rendered, and links to code become plain text, because the site does not contain it.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PROJECT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/households/README.md": "example.md",
    "examples/shop/README.md": "example_shop.md",
    "docs/quickstart.ipynb": "quickstart.md",
}
"""File of the project -> page of the site, for those that are not pages under their own name."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_ASSET = re.compile(r"""<(?:(?:script|img|iframe|source)\b[^>]*\bsrc|link\b[^>]*\bhref)=["']?(?:https?:)?//""")
_STYLE = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?:https?:)?//""")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are files elsewhere."""
    for source, page in PAGES.items():
        path = PROJECT / source
        text = path.read_text(encoding="utf-8")
        content = _notebook(json.loads(text)) if path.suffix == ".ipynb" else text
        files.append(File.generated(config, page, content=content))
        if (own := files.get_file_from_path(source.removeprefix("docs/"))) and own.src_uri != page:
            files.remove(own)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001  # by name
    """Point links at pages of the site; a link to any other file of the project becomes its text."""
    sources = {name: source for source, name in PAGES.items()}
    here = posixpath.dirname(sources.get(page.file.src_uri, f"docs/{page.file.src_uri}"))

    def replace(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        if re.match(r"[a-z]+:|#|/", target):
            return found.group()
        path, mark, anchor = target.partition("#")
        source = posixpath.normpath(posixpath.join(here, path))
        if not (PROJECT / source).exists():
            return found.group()  # for MkDocs to complain about
        name = PAGES.get(source, source.removeprefix("docs/") if source.startswith("docs/") else "")
        if not name or files.get_file_from_path(name) is None:
            return text
        relative = posixpath.relpath(name, posixpath.dirname(page.file.src_uri) or ".")
        return f"{image}[{text}]({relative}{mark}{anchor})"

    return _LINK.sub(replace, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that loads anything from another host."""
    for path in sorted(Path(config.site_dir).rglob("*")):
        pattern = {".html": _ASSET, ".css": _STYLE}.get(path.suffix)
        if pattern and (found := pattern.search(path.read_text(encoding="utf-8"))):
            raise PluginError(f"{path}: loads from another host: {found.group()}")


def _notebook(notebook: dict[str, Any]) -> str:
    """Return the cells of a notebook as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"
