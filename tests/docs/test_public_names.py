"""A name that a guide imports is public, and a public name is on a page of the API."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import spark_kafka_sink
from spark_kafka_sink import errors, local_kafka

ROOT = Path(__file__).resolve().parents[2]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = [path for path in GUIDES if path.parent.name not in ("design", "developers")]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
#: Modules whose names are public: the package, and two that its pages name.
PUBLIC = {
    "spark_kafka_sink": set(spark_kafka_sink.__all__),
    "spark_kafka_sink.errors": set(errors.__all__),
    "spark_kafka_sink.local_kafka": set(local_kafka.__all__),
}
#: The hash that one notebook compares with Java's: an internal function, and not for a job.
PROVED = {("spark_kafka_sink.records.partitioning.murmur2", "murmur2")}
#: The places that the API pages document.
DOCUMENTED = {
    place
    for path in (ROOT / "docs" / "api").glob("*.md")
    for place in re.findall(r"^::: ([\w.]+)$", path.read_text("utf-8"), re.MULTILINE)
}


def code_of(path: Path) -> list[str]:
    """The Python of a page or a notebook, a string for each block."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def imports_of(block: str) -> set[tuple[str, str]]:
    """Module and name of each import from the package; none where the block is no whole program."""
    try:
        tree = ast.parse(block)
    except SyntaxError:
        return set()
    return {
        (node.module, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spark_kafka_sink")
        for name in node.names
        if node.module
    }


@pytest.mark.parametrize("path", [*GUIDES, *NOTEBOOKS], ids=lambda path: path.name)
def test_a_guide_imports_public_names_only(path):
    found = {pair for block in code_of(path) for pair in imports_of(block)} - PROVED
    assert {(m, name) for m, name in found if name not in PUBLIC.get(m, ())} == set()


@pytest.mark.parametrize("name", sorted(PUBLIC["spark_kafka_sink"] - {"__version__"}))
def test_a_public_name_is_on_an_api_page(name):
    assert f"{spark_kafka_sink._HOMES[name]}.{name}" in DOCUMENTED


def test_guides_import_the_registry_and_the_metrics():
    """The test looks at something: three of the six names that were not public."""
    found = {pair[1] for path in GUIDES for block in code_of(path) for pair in imports_of(block)}
    assert {"SchemaRegistry", "PrometheusMetrics", "OpenTelemetryMetrics"} <= found
