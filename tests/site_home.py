"""The first page of the site: README, with its links as they are below docs. A hook of mkdocs, named in mkdocs.yml."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_PREFIX = re.compile(r'(\]\(|\bsrc(?:set)?=")docs/')
_LINK = re.compile(r"\[([^]]+)\]\(([^)#]+)[^)]*\)")


def home() -> str:
    """Return the page; what the site has no page for keeps its name without a link."""
    text = _PREFIX.sub(r"\1", (ROOT / "README.md").read_text("utf-8"))
    return _LINK.sub(lambda link: link[0] if (ROOT / "docs" / link[2]).is_file() else link[1], text)


def on_files(files: Any, config: Any) -> None:
    """Add the page (https://www.mkdocs.org/dev-guide/plugins/#on_files)."""
    from mkdocs.structure.files import File  # here: tests run without mkdocs

    files.append(File.generated(config, "index.md", content=home()))
