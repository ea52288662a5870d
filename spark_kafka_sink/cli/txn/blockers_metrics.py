"""Formats the transactions that block consumers of a topic as metrics, in the text format of
Prometheus.

Owns: the names and the text of the metrics. Never: finding the transactions
(``transactions/operations/blockers.py``).

The open transactions of a dead driver still block consumers, but a dead driver exports no metrics.
So these metrics come from the command ``kprod txn blockers --prometheus``. Cron runs the command,
and node_exporter's textfile collector reads its output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from spark_kafka_sink.transactions.operations.blockers import Blocker, Whose

#: Name, labels beside the topic, and help.
METRICS: Final = (
    ("kprod_topic_open_transactions", ("whose",), "Open transactions in the topic."),
    (
        "kprod_topic_oldest_transaction_age_seconds",
        ("whose",),
        "How long the oldest of them is open; 0: none is.",
    ),
    (
        "kprod_topic_held_offsets",
        (),
        "Offsets after the last stable ones, which consumers that read committed can't read.",
    ),
    ("kprod_topic_checked_timestamp_seconds", (), "When this was asked, in seconds since 1970."),
)


def metrics_text(topic: str, found: Sequence[Blocker], now_ms: int) -> str:
    """The metrics as text. If no transaction blocks consumers, the series have the value 0. Without
    these zeros, Prometheus could not see a later increase.
    """
    values: dict[str, list[tuple[str, float]]] = {name: [] for name, _, _ in METRICS}
    open_, age, held, checked = values.values()
    for whose in Whose:
        of_them = [one for one in found if one.whose is whose]
        label = f',whose="{whose.value}"'
        open_.append((label, len(of_them)))
        age.append((label, max((one.age_ms or 0 for one in of_them), default=0) / 1000))
    held.append(("", sum(part.behind for one in found for part in one.held)))
    checked.append(("", now_ms / 1000))
    return "".join(_lines(topic, values))


def _lines(topic: str, values: dict[str, list[tuple[str, float]]]) -> Iterator[str]:
    for name, _, text in METRICS:
        yield f"# HELP {name} {text}\n# TYPE {name} gauge\n"
        for label, value in values[name]:
            yield f'{name}{{topic="{topic}"{label}}} {value}\n'
