"""Creates the README and the links in the metadata of the package. hatchling calls this hook.

A package index shows this README and no other file of the repository. So links to other files are
changed to links to the documentation site, which ``base/documentation.py`` names. While no site is
named, such a link becomes plain text, and pictures are left out. pyproject.toml names the hook.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^]]*)]\((?!https?://|#)([^)#]+)(#[^)]*)?\)")
#: Pages that the site has elsewhere.
_ELSEWHERE = {
    "CONTRIBUTING.md": "contributing/",
    "DESIGN.md": "design/",
    "SECURITY.md": "security-policy/",
}


class Metadata(MetadataHookInterface):
    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        sys.path.insert(0, self.root)
        try:
            site = runpy.run_path(str(root / "spark_kafka_sink" / "base" / "documentation.py"))[
                "SITE"
            ]
        finally:
            sys.path.remove(self.root)
        readme = shown((root / "README.md").read_text("utf-8"), site, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
        if site:
            metadata["urls"] = addresses(site)


def shown(readme: str, site: str, version: str) -> str:
    """The README as an index has it."""

    def link(found: re.Match[str]) -> str:
        picture, words, target, anchor = found.groups()
        if not site:
            return "" if picture else words
        place = _ELSEWHERE.get(target) or target.removeprefix("docs/").removesuffix("index.md")
        place = f"{place.removesuffix('.md')}/" if place.endswith(".md") else place
        return f"{picture}[{words}]({site}/{version}/{place}{anchor or ''})"

    return _LINK.sub(link, readme)


def addresses(site: str) -> dict[str, str]:
    """What an index links beside it."""
    pages = {"Documentation": "", "Errors": "errors/", "Changelog": "changelog/"}
    return {name: f"{site}/latest/{page}" for name, page in pages.items()}
