"""Formats the transactions that block consumers of a topic as metrics, in the text format of
Prometheus. ``transactions/operations/blockers.py`` finds the transactions.

The metrics are the output of ``kprod txn blockers --prometheus``. Cron runs the command, and
node_exporter's textfile collector reads its output. A driver does not export these metrics: the
open transactions of a dead driver still block consumers, but a dead driver exports nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from spark_kafka_sink.transactions.operations.blockers import Blocker, Whose

#: The label with the kind of client that can end a transaction (:class:`Whose`).
_WHOSE: Final = "whose"


class TopicGauge(NamedTuple):
    """The definition of a metric: its name, and its help text for Prometheus. Every metric has the
    label ``topic``. ``label`` is the name of a second label, or empty.
    """

    name: str
    help: str
    label: str = ""


_OPEN: Final = TopicGauge(
    "kprod_topic_open_transactions",
    "Open transactions in the topic, by `whose`.",
    _WHOSE,
)
_OLDEST_AGE: Final = TopicGauge(
    "kprod_topic_oldest_transaction_age_seconds",
    "Age of the topic's oldest open transaction, by `whose`, in seconds. 0 if no transaction is"
    " open. NaN if the age is unknown.",
    _WHOSE,
)
_HELD: Final = TopicGauge(
    "kprod_topic_held_offsets",
    "Offsets of the topic that read_committed consumers can't read yet, summed over the"
    " partitions.",
)
_CHECKED: Final = TopicGauge(
    "kprod_topic_checked_timestamp_seconds",
    "Time when 'kprod txn blockers' last looked at the topic, in seconds since 1970.",
)
METRICS: Final = (_OPEN, _OLDEST_AGE, _HELD, _CHECKED)


class _Sample(NamedTuple):
    """A value of a metric. ``label_value`` is the value of the metric's second label, such as
    ``orphan``. It is empty if the metric has no second label.
    """

    label_value: str
    value: float


def metrics_text(topic: str, blockers: Sequence[Blocker], now_ms: int) -> str:
    """The metrics as text in the format of Prometheus. If no transaction is open in the topic, the
    counts and ages are 0. If only transactions with an unknown age are open, the age is NaN.
    """
    # A metric without an open transaction has the value 0. If it were missing, Prometheus could not
    # see a later increase.
    by_whose = {whose.value: [b for b in blockers if b.whose is whose] for whose in Whose}
    held_offsets = sum(part.behind for blocker in blockers for part in blocker.held)
    samples = {
        _OPEN: [_Sample(whose, len(theirs)) for whose, theirs in by_whose.items()],
        _OLDEST_AGE: [_Sample(whose, _oldest_age_s(theirs)) for whose, theirs in by_whose.items()],
        _HELD: [_Sample("", held_offsets)],
        _CHECKED: [_Sample("", now_ms / 1000)],
    }
    return "".join(line for metric in METRICS for line in _lines(topic, metric, samples[metric]))


def _oldest_age_s(blockers: Sequence[Blocker]) -> float:
    """The age of the oldest transaction in seconds. 0 without transactions, NaN if no age is
    known.
    """
    ages = [blocker.age_ms for blocker in blockers if blocker.age_ms is not None]
    if blockers and not ages:
        return math.nan
    return max(ages, default=0) / 1000


def _lines(topic: str, metric: TopicGauge, samples: Sequence[_Sample]) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} gauge\n"
    for label_value, value in samples:
        label = f',{metric.label}="{label_value}"' if metric.label else ""
        shown = "NaN" if math.isnan(value) else value
        yield f'{metric.name}{{topic="{topic}"{label}}} {shown}\n'
