"""MkDocs hook: README, CONTRIBUTING, CHANGELOG, SECURITY and the notebooks become pages of the site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are files of the repository's root. Their links to `docs/` become links within the site."""
    for name, page in PAGES.items():
        text = Path(config.docs_dir, "..", name).read_text().replace("](docs/", "](")
        for other, target in PAGES.items():
            text = text.replace(f"]({other}", f"]({target}")
        files.append(File.generated(config, page, content=text))
    for path in sorted(Path(config.docs_dir, "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=_notebook(path)))
    return files


def _notebook(path: Path) -> str:
    """Return the cells of a notebook as Markdown, with a link to the notebook itself."""
    parts = [f"[Download this notebook]({path.name})"]
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(
            source.replace(".ipynb)", ".md)") if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
        )
    parts[0], parts[1] = parts[1], parts[0]  # the title comes first
    return "\n\n".join(parts)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files of the repository's root at their pages."""
    for name, target in PAGES.items():
        markdown = markdown.replace(f"](../{name}", f"]({target}")
    return markdown
