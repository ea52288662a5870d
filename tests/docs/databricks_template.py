"""templates/databricks as ``databricks bundle init`` would write it.

Go's templates can do more; ours have ``{{.name}}`` alone, in names of files and in files that end
in ``.tmpl``. Others are copied as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

TEMPLATE = Path(__file__).resolve().parents[2] / "templates" / "databricks"
SCHEMA: dict[str, Any] = json.loads((TEMPLATE / "databricks_template_schema.json").read_text())
DEFAULTS: dict[str, str] = {name: one["default"] for name, one in SCHEMA["properties"].items()}
_PROPERTY = re.compile(r"\{\{\.([a-z_]+)}}")


def written(into: Path, answers: Mapping[str, str] | None = None) -> Path:
    """The project, below ``into``; what is not answered is the default. KeyError for a property
    that is not asked for.
    """
    answers = DEFAULTS | dict(answers or {})

    def filled(text: str) -> str:
        return _PROPERTY.sub(lambda found: answers[found[1]], text)

    root = TEMPLATE / "template"
    for path in root.rglob("*"):
        place = into / filled(str(path.relative_to(root)))
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif path.suffix == ".tmpl":
            place.with_suffix("").write_text(filled(path.read_text("utf-8")), "utf-8")
        else:
            place.write_bytes(path.read_bytes())
    return into / answers["project_name"]


def bundle(project: Path) -> dict[str, Any]:
    """databricks.yml with the resources that it includes."""
    whole: dict[str, Any] = yaml.safe_load((project / "databricks.yml").read_text("utf-8"))
    for pattern in whole["include"]:
        for path in project.glob(pattern):
            whole |= yaml.safe_load(path.read_text("utf-8"))
    return whole


def with_variables(value: Any, found: Mapping[str, str]) -> Any:
    """``value`` with each ``${name}`` replaced; KeyError for one that is not there."""
    if isinstance(value, dict):
        return {name: with_variables(one, found) for name, one in value.items()}
    if isinstance(value, list):
        return [with_variables(one, found) for one in value]
    if isinstance(value, str):
        return re.sub(r"\$\{([a-z_.]+)}", lambda name: found[name[1]], value)
    return value


def job(project: Path, target: str = "dev") -> dict[str, Any]:
    """The settings of its job in a target, with the variables' defaults."""
    whole = bundle(project)
    assert target in whole["targets"]
    found = {f"var.{name}": one["default"] for name, one in whole["variables"].items()}
    found |= {"bundle.name": whole["bundle"]["name"], "bundle.target": target}
    settings: dict[str, Any] = with_variables(whole["resources"]["jobs"]["write"], found)
    return settings
