"""Runs the notebooks and writes what is made of them: ``make notebooks``.

    python tools/notebooks.py                run all; write their pages and the Databricks sources
    python tools/notebooks.py quick_start    of these only

A notebook is kept without outputs, so that its diffs can be read. Its page, with outputs and plots,
is docs/notebooks/NAME.md, which nbconvert writes. tests/notebooks finds a page that is stale: its
code is not the notebook's, or a run of the notebook prints other words. Numbers are not compared,
because times differ.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import databricks_notebooks  # noqa: E402 - runs from a bare checkout
import plots  # noqa: E402

from bench.peers import avro_jars, connector_jars  # noqa: E402
from spark_kafka_sink.local_kafka import KafkaCluster  # noqa: E402

FOLDER = ROOT / "notebooks"
PAGES = ROOT / "docs" / "notebooks"
#: In the order of the navigation.
NAMES = (
    "quick_start",
    "exactly_once",
    "migration",
    "partitioner",
    "report",
    "tuning",
    "keys_and_tombstones",
    "changelogs",
    "two_topics",
    "dead_letters",
    "schemas",
    "backfill",
)
#: A bound of a notebook, and of each of its cells. The longest starts two drivers, one after the
#: other: a minute on a quiet machine, more than five beside twenty processes on two cores.
LONGEST_S = 900
_NOTICE = "<!-- Made of notebooks/{name}.ipynb by tools/notebooks.py. -->"
#: A cell of code, on a page.
_CODE = re.compile(r"(^```python\n.*?\n```$)", re.DOTALL | re.MULTILINE)
#: The end of a topic's name, unlike that of every other run, also in names of Avro's.
_RUN = re.compile(r"(?<=[a-z])([-_])[0-9a-f]{8}(?![0-9A-Za-z])")
#: What names the machine on which a page was made.
_MACHINE = re.compile(r"127\.0\.0\.1|\blocalhost:\d|/tmp/|/home/|/root/|/work/")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", choices=[[], *NAMES], metavar="NAME", default=[])
    names = parser.parse_args().names or NAMES
    jars = f"{connector_jars()},{avro_jars()}"
    with KafkaCluster() as kafka:
        for name in names:
            write_page(name, executed(read(name), environment(kafka.bootstrap, jars)))
            print(name, flush=True)
    for name in databricks_notebooks.NAMES:
        databricks_notebooks.path_of(name).write_text(databricks_notebooks.source(name, read(name)))
    return 0


def read(name: str) -> NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def environment(bootstrap: str, jars: str) -> dict[str, str]:
    """Of a kernel whose notebook writes to ``bootstrap``. ``jars`` are between commas, or none."""
    submit = f"--jars {jars} pyspark-shell" if jars else "pyspark-shell"
    return {
        "KPROD_BOOTSTRAP": bootstrap,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--driver-memory 1g {submit}",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{FOLDER}",
    }


def executed(notebook: NotebookNode, variables: Mapping[str, str]) -> NotebookNode:
    """The notebook with outputs, run from top to bottom in an empty folder, which also takes its
    temporary files. Raises CellExecutionError.
    """
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        _environment({**variables, "TMPDIR": folder}),
    ):
        plots.write_settings(Path(folder))
        client = NotebookClient(
            notebook,
            extra_arguments=list(plots.KERNEL_ARGUMENTS),
            timeout=LONGEST_S,
            iopub_timeout=60,
            startup_timeout=180,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        )
        return client.execute()


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """What a kernel inherits."""
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def write_page(name: str, notebook: NotebookNode) -> None:
    """docs/notebooks/NAME.md, and its plots beside it. Raises ValueError for a page that names this
    machine.
    """
    text, pictures = page(name, notebook)
    PAGES.mkdir(exist_ok=True)
    for stale in PAGES.glob(f"{name}_*.svg"):
        stale.unlink()
    (PAGES / f"{name}.md").write_text(text, encoding="utf-8")
    for file, content in pictures.items():
        (PAGES / file).write_text(content, encoding="utf-8")


def page(name: str, notebook: NotebookNode) -> tuple[str, dict[str, str]]:
    """The text of a page, and the pictures that it shows."""
    for cell in notebook.cells:
        if cell.cell_type == "code":  # on standard error is Spark's log
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    exporter = MarkdownExporter()
    text, resources = exporter.from_notebook_node(notebook, {"unique_key": name})
    text = _RUN.sub(r"\g<1>1a2b3c4d", text)
    titles = {file: f"{_heading(text[:at])}, a plot" for file, at in _plots_in(text)}
    text = re.sub(r"!\[svg\]\(([^)]+)\)", lambda found: f"![{titles[found[1]]}]({found[1]})", text)
    parts = _CODE.split(re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE))
    parts[::2] = [re.sub(r"\n{3,}", "\n\n", part) for part in parts[::2]]  # what is not code
    text = "".join(parts).strip()
    text = links_of_page(text)
    named = names_a_machine(text) or re.search(rf"\b{re.escape(socket.gethostname())}\b", text)
    if named is not None:
        raise ValueError(f"{name} shows {named[0]}, which names this machine")
    pictures = {
        file: plots.picture(content.decode("utf-8"), file.removesuffix(".svg"), titles[file])
        for file, content in resources["outputs"].items()
    }
    head, _, rest = text.partition("\n")
    return f"{head}\n\n{_NOTICE.format(name=name)}\n{rest}\n", pictures


def links_of_page(text: str) -> str:
    """Links to pages and notebooks, as a page in docs/notebooks has them."""
    text = re.sub(r"\]\(\.\./docs/", "](../", text)
    return re.sub(r"\]\(([a-z_]+)\.ipynb", r"](\1.md", text)


def names_a_machine(text: str) -> re.Match[str] | None:
    """A path or an address that readers of a page can't make use of."""
    return _MACHINE.search(text)


def _plots_in(text: str) -> Iterator[tuple[str, int]]:
    """Each plot's file, and where it is."""
    for found in re.finditer(r"!\[svg\]\(([^)]+)\)", text):
        yield found[1], found.start()


def _heading(text: str) -> str:
    """The last one."""
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)[-1]


def words_of_page(text: str) -> set[str]:
    """The words outside of the code cells, with their units: the same in each run."""
    return set(re.findall(r"[A-Za-z_]{2,}", " ".join(_CODE.split(text)[::2])))


def code_of_page(text: str) -> list[str]:
    """The code cells of a page."""
    found = _CODE.findall(text)
    return [one.removeprefix("```python\n").removesuffix("\n```") for one in found]


if __name__ == "__main__":
    raise SystemExit(main())
