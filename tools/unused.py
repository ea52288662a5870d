"""Finds functions, methods, properties and classes of the package that the package does not use.

    python tools/unused.py

What only tests call is a helper of theirs and belongs to them. A name counts as used when it occurs
anywhere in the package (vulture), so what shares its name with something used is not found.
"""

from __future__ import annotations

import sys
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"function", "method", "property", "class", "import"}
#: Why something without a caller here is there all the same.
ALLOWED = {
    "Python's": ["__getattr__", "__dir__"],
    "Spark's": [
        "DefaultSource",
        "onQueryStarted",
        "onQueryProgress",
        "onQueryIdle",
        "onQueryTerminated",
    ],
    "what metrics are handed to (docs/monitoring.md)": [
        "OpenTelemetryMetrics",
        "PrometheusMetrics",
    ],
    "Typer's": ["kprod"],
    "http.client's and io's": ["makefile", "readable", "readinto"],
    "the producer's public methods (docs/python-producer.md)": [
        "send_batches",
        "partitions_for",
        "commit_transaction",
        "abort_transaction",
        "add_done_callback",
        "has_offset",
        "has_timestamp",
    ],
    "states that tests look at (Java's isCompleted, hasUnresolvedSequences)": [
        "is_completed",
        "has_unresolved_batches",
    ],
    "the local Kafka's public methods (CONTRIBUTING.md)": ["wait_until_in_sync", "thaw"],
    "pytest's, by its name as a fixture": ["kafka_bootstrap"],
}


def main() -> int:
    allowed = {name for names in ALLOWED.values() for name in names}
    finder = Vulture()
    finder.scavenge([str(ROOT / "spark_kafka_sink"), str(ROOT / "pyspark_kprod")])
    found = [item for item in finder.get_unused_code() if item.typ in KINDS]
    unused = [item for item in found if item.name not in allowed]
    for item in unused:
        place = Path(item.filename).relative_to(ROOT)
        print(f"{place}:{item.first_lineno}: nothing in the package uses {item.typ} {item.name!r}")
    needless = allowed - {item.name for item in found}
    for name in sorted(needless):
        print(f"tools/unused.py: {name!r} is allowed, and is used or gone")
    return 1 if unused or needless else 0


if __name__ == "__main__":
    sys.exit(main())
