"""Finds functions, classes, fields and constants that the package does not use.

    python tools/unused.py

What only tests call is a helper of theirs and belongs to them. A name counts as used when it occurs
anywhere in the package (vulture), so what shares its name with something used is not found.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path

from vulture import Vulture
from vulture.core import Item

from spark_kafka_sink.datasource.report.write_report import WriteReport

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"function", "method", "property", "class", "import", "attribute", "variable"}
#: Messages have every field that Kafka defines, and what is written as JSON is read from there.
EXEMPT = (
    "protocol/messages/",
    "datasource/report/write_report.py",
    "datasource/write/task_progress.py",
    "datasource/monitoring/running_writes.py",
)
#: Why something without a caller here is there all the same.
ALLOWED = {
    "Python's": [
        "__getattr__",
        "__dir__",
        "__init_subclass__",
        "__class__",
        "_missing_",
        "__signature__",
    ],
    "Spark's": [
        "DefaultSource",
        "onQueryStarted",
        "onQueryProgress",
        "onQueryIdle",
        "onQueryTerminated",
    ],
    "Typer's": ["kprod"],
    "IPython's": ["_repr_html_"],
    "http.client's and io's": ["default_port", "readable", "readinto"],
    "the producer's public methods (docs/python-producer.md)": [
        "send_batches",
        "commit_transaction",
        "abort_transaction",
        "has_offset",
        "has_timestamp",
    ],
    "members of an enum that are found by their value, or compared with by none": [
        "AT_LEAST_ONCE",
        "DEAD",
        "REPLAY",
        "SETTLED",
    ],
    "what generated pages say of options and errors": ["java_defaults", "doc"],
    "read as an item of its tuple": ["first_offset_delta"],
    "RecordMetadata's, as in Java": ["serialized_key_size", "serialized_value_size"],
    "the local Kafka's public methods (CONTRIBUTING.md)": ["wait_until_in_sync", "thaw"],
    "pytest's, by its name as a fixture": ["kafka_bootstrap", "schema_registry_url"],
}


#: A report takes its counters by name.
REPORTED = {one.name for one in fields(WriteReport)}


def _is_exempt(item: Item) -> bool:
    return item.name in REPORTED or any(path in item.filename.as_posix() for path in EXEMPT)


def main() -> int:
    allowed = {name for names in ALLOWED.values() for name in names}
    finder = Vulture()
    finder.scavenge([str(ROOT / "spark_kafka_sink"), str(ROOT / "pyspark_kprod")])
    unused = finder.get_unused_code()
    found = [item for item in unused if item.typ in KINDS and not _is_exempt(item)]
    refused = [item for item in found if item.name not in allowed]
    for item in refused:
        place = Path(item.filename).relative_to(ROOT)
        print(f"{place}:{item.first_lineno}: nothing in the package uses {item.typ} {item.name!r}")
    needless = allowed - {item.name for item in found}
    for name in sorted(needless):
        print(f"tools/unused.py: {name!r} is allowed, and is used or gone")
    return 1 if refused or needless else 0


if __name__ == "__main__":
    sys.exit(main())
