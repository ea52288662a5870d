"""What the files of the notebooks are: source, pages of the site, Databricks sources.

None is run here; test_notebooks.py runs them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
import tomllib
from itertools import pairwise

import nbformat
import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from spark_kafka_sink.cli.app import app
from tools import databricks_notebooks, notebooks

PROJECT = tomllib.loads((notebooks.ROOT / "pyproject.toml").read_text("utf-8"))
INDEX = (notebooks.PAGES / "index.md").read_text("utf-8")


def code_of(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def page_of(name):
    return (notebooks.PAGES / f"{name}.md").read_text("utf-8")


def test_every_notebook_is_run_and_is_on_the_index_page():
    assert {path.stem for path in notebooks.FOLDER.glob("*.ipynb")} == set(notebooks.NAMES)
    assert [*dict.fromkeys(re.findall(r"\]\(([a-z_]+)\.md\)", INDEX))] == [*notebooks.NAMES]


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_notebook_is_kept_without_outputs(name):
    nbformat.validate(notebooks.read(name))
    for cell in notebooks.read(name).cells:
        assert not cell.get("outputs"), "clear the outputs before committing"
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_sentence_before_each_cell_of_code_says_what_it_shows(name):
    cells = notebooks.read(name).cells
    assert cells[0].cell_type == "markdown"
    for before, cell in pairwise(cells):
        if cell.cell_type == "code":
            assert before.cell_type == "markdown", cell.source
            text = re.sub(r"^#.*$", "", before.source, flags=re.MULTILINE).strip()
            assert text.endswith((".", ":")), before.source


def test_cells_with_a_tag_are_the_same_in_all_notebooks():
    found = {}
    for name in notebooks.NAMES:
        for cell in notebooks.read(name).cells:
            for tag in set(cell.metadata.get("tags", ())) & {"setup", "session"}:
                found.setdefault((tag, cell.cell_type), set()).add(cell.source)
    assert {key: len(sources) for key, sources in found.items()} == dict.fromkeys(found, 1)


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_notebook_imports_only_extras_and_the_dev_group(name):
    brought = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["test"]]
    brought += [
        line for extra in PROJECT["project"]["optional-dependencies"].values() for line in extra
    ]
    modules = {Requirement(line).name.replace("-", "_") for line in brought}
    for node in ast.walk(ast.parse("\n".join(code_of(notebooks.read(name))))):
        imported = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for module in (one.partition(".")[0] for one in imported):
            assert module in modules | sys.stdlib_module_names | {"kprod_notebook"}, module


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_the_page_of_a_notebook_has_its_code_and_its_words(name):
    """Outputs differ from run to run, and are not compared: ``make notebooks`` writes them."""
    notebook, text = notebooks.read(name), page_of(name)
    assert notebooks.code_of_page(text) == code_of(notebook), "make notebooks"
    shown = " ".join(text.split())
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for line in notebooks.links_of_page(cell.source).splitlines():
                assert " ".join(line.split()) in shown, "make notebooks"


def test_the_migration_page_shows_what_kprod_convert_prints_today(tmp_path):
    """``kprod convert`` needs no broker, so its texts on the page are compared without a run."""
    text = page_of("migration")
    options = re.search(r'old\.write_text\("""\\\n(.*?)"""\)', text, re.DOTALL)
    assert options is not None
    old = tmp_path / "old.properties"
    old.write_text(options[1])
    printed = CliRunner().invoke(app, ["convert", str(old)])
    shown = [line[4:] for line in text.splitlines() if line.startswith("    kprod: ")]
    assert [line for line in printed.stderr.splitlines() if line] == shown
    assert textwrap.indent(printed.stdout.strip(), "    ") in text


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_page_of_its_subject_links_a_notebook(name):
    pages = notebooks.PAGES.parent.glob("*.md")
    assert any(f"](notebooks/{name}.md)" in page.read_text("utf-8") for page in pages)


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_page_has_its_plots_and_names_no_machine(name):
    text = page_of(name)
    assert notebooks.names_a_machine(text) is None
    plots = set(re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text))
    assert plots == {path.name for path in notebooks.PAGES.glob(f"{name}_*")}


@pytest.mark.parametrize("name", databricks_notebooks.NAMES)
def test_a_databricks_source_is_that_of_its_notebook(name):
    written = databricks_notebooks.path_of(name).read_text("utf-8")
    assert written == databricks_notebooks.source(name, notebooks.read(name)), "make notebooks"
    assert written.startswith("# Databricks notebook source\n")
    for cell in notebooks.read(name).cells:
        if not cell.metadata.get("tags") and cell.cell_type == "code":
            assert f"\n\n{cell.source}\n" in written


@pytest.mark.parametrize("name", databricks_notebooks.NAMES)
def test_a_databricks_source_compiles_and_its_names_exist(name):
    path = databricks_notebooks.path_of(name)
    compile(path.read_text("utf-8"), path.name, "exec")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", str(path)]
    builtins = ["--config", "builtins = ['dbutils', 'spark']"]
    done = subprocess.run([*command, *builtins], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    text = path.read_text("utf-8")
    assert "local_kafka" not in text
    assert "KPROD_BOOTSTRAP" not in text
