"""Adds a file with the digest of the package's files to the wheel. hatchling calls this hook.

``package_digest.py`` computes the digest. In an installed package, it reads this file, so that it
need not read all other files. pyproject.toml names the hook.
"""

from __future__ import annotations

import json
import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "spark_kafka_sink"


class Build(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # its files change
        self.kept = tempfile.TemporaryDirectory()  # until this process ends
        file = Path(self.kept.name) / "built"
        name, text = built(Path(self.root) / PACKAGE)
        file.write_text(text, encoding="utf-8")
        build_data["force_include"][str(file)] = f"{PACKAGE}/{name}"


def built(package: Path) -> tuple[str, str]:
    """The file's name below the package, and its text."""
    own = runpy.run_path(str(package / "datasource" / "process" / "package_digest.py"))
    sizes = own["digest_of"]([(name, one.stat().st_size) for name, one in own["sources"](package)])
    digests = {"digest": own["digest_of_files"](package), "sizes": sizes}
    return own["BUILT"], json.dumps(digests)
