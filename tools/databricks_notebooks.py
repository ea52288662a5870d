"""Notebooks as Databricks source files (notebooks/databricks/*.py), made of those of notebooks/.

What starts a Kafka and a session here has a counterpart there: widgets, secrets of a scope, the
notebook's own ``spark``. Such cells have a tag; all others are the same. ``make notebooks`` writes
the files. Nobody has run them in a workspace.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from spark_kafka_sink.base import documentation  # noqa: E402 - runs from a bare checkout

FOLDER = ROOT / "notebooks" / "databricks"
NAMES: Final = ("quick_start", "exactly_once", "two_topics")
_HEAD: Final = "# Databricks notebook source\n"
_CELL: Final = "\n\n# COMMAND ----------\n\n"

#: Where an example of a workspace has the wheel: no package index has the package.
_WHEEL: Final = "/Volumes/main/default/libraries/spark_kafka_sink-0.2.0-py3-none-any.whl"

_INSTALL: Final = """\
The next cell installs what the notebook needs. On classic compute the package must also be a
library of the cluster, because Spark's Python workers run it."""

_SETUP: Final = """\
The next cell makes the widgets above. Fill them in, and run it again: the brokers, the scope of the
secrets `username` and `password`, a folder of a volume for files that driver and executors share,
and a name for this run."""

#: By tag: what stands there in place of the cell and of the sentence before it. Nothing: left out.
_COUNTERPARTS: Final[dict[str, tuple[str, str] | None]] = {
    "setup": (
        _SETUP,
        """\
import uuid
from pathlib import Path

dbutils.widgets.text("bootstrap_servers", "b1:9093,b2:9093")
dbutils.widgets.text("secret_scope", "kafka")
dbutils.widgets.text("folder", "/Volumes/main/default/kprod")
dbutils.widgets.text("run", "{run}")

scope = dbutils.widgets.get("secret_scope")
kafka = {{
    "kafka.bootstrap.servers": dbutils.widgets.get("bootstrap_servers"),
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": dbutils.secrets.get(scope, "username"),
    "kafka.sasl.password": dbutils.secrets.get(scope, "password"),
}}
clients = {{name.removeprefix("kafka."): value for name, value in kafka.items()}}
run = dbutils.widgets.get("run") or uuid.uuid4().hex[:8]
folder = Path(dbutils.widgets.get("folder")) / run
folder.mkdir(parents=True, exist_ok=True)""",
    ),
    "session": (
        "The next cell makes the format `kprod` known to the notebook's session.",
        """\
from pyspark.sql import functions as F

from spark_kafka_sink import register

register(spark)""",
    ),
    "topics": (
        """\
## Two topics

The next cell makes a topic for each of the two guarantees, unless they are there from the run
before the kill.""",
        """\
from confluent_kafka.admin import AdminClient, NewTopic

topics = {{guarantee: f"{{guarantee}}-{{run}}" for guarantee in ("exactly-once", "at-least-once")}}
admin = AdminClient(clients)
there = admin.list_topics(timeout=30).topics
new = [NewTopic(topic, 6) for topic in topics.values() if topic not in there]
for made in (admin.create_topics(new) if new else {{}}).values():
    made.result(30)""",
    ),
    "application": (
        """\
## The application

On Databricks the application is this notebook, and its driver is the compute's. The next cell
starts the queries.""",
        """\
from spark_kafka_sink import register

register(spark)
queries = start_queries(spark, kafka, str(folder), topics)""",
    ),
    "kill": (
        """\
## Kill it

The next cell waits until two micro-batches are visible. Then, while the queries run, restart the
compute from its menu, and run the notebook from its top with the same `run`.""",
        """\
import time

while rows_of(topics["exactly-once"]).total() < 1000:
    assert all(query.exception() is None for query in queries)
    time.sleep(0.5)
before = {{guarantee: rows_of(topic).total() for guarantee, topic in topics.items()}}
before""",
    ),
    "restart": (
        """\
## Start it again

After the restart, the queries have continued from their checkpoints. If the driver died after its
decision to commit a micro-batch, the new start first finished this commit. If it died before the
decision, Spark has written the micro-batch again. The next cell waits for more rows and stops the
queries.""",
        """\
while rows_of(topics["exactly-once"]).total() < before["exactly-once"] + 3000:
    assert all(query.exception() is None for query in queries)
    time.sleep(0.5)
for query in queries:
    query.stop()""",
    ),
    "end": None,
}
_RUN: Final = {"exactly_once": "first"}


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.py"


def source(name: str, notebook: NotebookNode) -> str:
    """The notebook in Databricks' source format."""
    return _HEAD + _CELL.join(_cells(name, notebook)) + "\n"


def _cells(name: str, notebook: NotebookNode) -> Iterator[str]:
    title, *others = notebook.cells
    made = f"Made of notebooks/{name}.ipynb. Nobody has run it in a Databricks workspace yet."
    yield _markdown(f"{title.source.split('You need')[0].strip()}\n\n{made}")
    yield _markdown(_INSTALL)
    yield f"# MAGIC %pip install {_WHEEL} confluent-kafka\n# MAGIC %restart_python"
    for cell in others:
        tag = next((tag for tag in cell.metadata.get("tags", ()) if tag in _COUNTERPARTS), None)
        is_text = cell.cell_type == "markdown"
        if tag is None:
            yield _markdown(cell.source) if is_text else cell.source
            continue
        counterpart = _COUNTERPARTS[tag]
        if counterpart is not None:
            text, code = counterpart
            yield _markdown(text) if is_text else code.format(run=_RUN.get(name, ""))


def _markdown(text: str) -> str:
    """A cell of text; its links lead to the site, and are words while there is none."""
    site = documentation.SITE and f"{documentation.SITE}/latest"
    for target, place in ((r"\.\./docs/([a-z-]+)\.md", ""), (r"([a-z_]+)\.ipynb", "notebooks/")):
        link = rf"[\1]({site}/{place}\2/\3)" if site else r"\1"
        text = re.sub(rf"\[([^]]+)]\({target}(#[^)]*)?\)", link, text)
    return "\n".join(["# MAGIC %md", *(f"# MAGIC {line}".rstrip() for line in text.splitlines())])
