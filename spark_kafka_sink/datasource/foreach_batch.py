"""A function for ``writeStream.foreachBatch`` that writes each micro-batch exactly once.

Owns: :func:`foreach_batch`, which gives every write its identity: txnAppId is the name, txnVersion
the micro-batch's id. It stands before Spark, in the user's hands. Never: the writing itself, which
is the batch writer's of ``format("kprod")``.

Spark runs a micro-batch again after a failure, with the same id. Nothing in a batch write tells
which of the writes in one foreachBatch it is, so its user does: two writes with one name would take
each other for the same one, and the second would write nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.errors import ConfigError, safe_text
from spark_kafka_sink.transactions.transactional_ids import check_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

OptionText = str | int | float | bool

#: What :func:`foreach_batch` sets, folded.
_ITS_OWN = ("txnappid", "txnversion")

#: Names that this process gave, and a hash of their options: two writes must not share one.
_given: dict[str, int] = {}

#: By name, the write that this process did last: the query's run, the micro-batch, a hash of what
#: was written, and of the options: where to.
_written: dict[str, tuple[str, int, int, int]] = {}


@dataclass(frozen=True, slots=True)
class ForeachBatch:
    """Writes a micro-batch with ``options`` under ``name``. Picklable (Spark Connect sends it)."""

    name: str
    options: tuple[tuple[str, OptionText], ...]

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Spark's: once for each micro-batch, and again for one that was not finished.

        Raises ConfigError for another DataFrame, or other options, under the same name in one
        micro-batch, as far as that can be seen (not over Spark Connect, nor from threads of one's
        own).
        """
        what = _told(batch, batch_id, hash(self.options))
        before = _written.get(self.name)
        if what is not None and before is not None and before[:2] == what[:2] and before != what:
            same = (
                "another DataFrame" if before[2] != what[2] else "this DataFrame with other options"
            )
            raise ConfigError(
                f"foreach_batch('{self.name}') wrote {same} in micro-batch {batch_id} "
                "already, so this one would count as done, and none of its rows would be written",
                hint="give each write in a foreachBatch function a name of its own",
            )
        (
            batch.write.format("kprod")
            .options(**dict(self.options))
            .option("deliveryGuarantee", "exactly-once")
            .option("txnAppId", self.name)
            .option("txnVersion", batch_id)
            .mode("append")
            .save()
        )
        if what is not None:
            _written[self.name] = what


def foreach_batch(name: str, **options: OptionText) -> ForeachBatch:
    """What ``writeStream.foreachBatch`` takes: every micro-batch is in Kafka once, or not yet.

        write = foreach_batch("orders", **{"kafka.bootstrap.servers": "host:9092", "topic": "t"})
        df.writeStream.foreachBatch(write).option("checkpointLocation", path).start()

    ``name`` is the write's, for good: unique among all writes with the same transactionalIdPrefix
    (``kprod`` unless set), the same after a restart, and a new one for a new checkpoint, whose ids
    begin at 0 again. ``options`` are those of the sink. It also serves outputMode("update"), which
    Spark refuses to Python sinks. In a foreachBatch function of your own, call what this returns.

    Raises ConfigError for a name that is not legal, and for options that contradict it.
    """
    check_part("the name given to foreach_batch", name)
    _check(options)
    told = hash(frozenset((key.lower(), str(value)) for key, value in options.items()))
    if _given.setdefault(name, told) != told:
        _log.warning(
            "foreach_batch('%s') is made twice with different options: two writes under one name "
            "take each other for the same one, and the second writes nothing; give each a name of "
            "its own",
            name,
        )
    return ForeachBatch(name, tuple(options.items()))


def _told(batch: DataFrame, batch_id: int, options: int) -> tuple[str, int, int, int] | None:
    """What tells a write from another one of the same run of a query; None when nobody knows.

    A function that tries again what it did before writes the same DataFrame to the same place, in
    the same run. A query that is started again is another run.
    """
    try:
        run = batch.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
        return (run, batch_id, batch.semanticHash(), options) if run else None
    except Exception:  # noqa: BLE001 - Spark Connect has neither; the write must not fail for it
        return None


def _check(options: Mapping[str, OptionText]) -> None:
    for key, value in options.items():
        if key.lower() in _ITS_OWN:
            raise ConfigError(
                f"foreach_batch sets {safe_text(key)} itself: to its name, and to the micro-batch's"
                " id",
                hint="remove it from the options",
            )
        if key.lower() == "deliveryguarantee" and str(value).strip().lower() != "exactly-once":
            raise ConfigError(
                f"foreach_batch is exactly-once, and deliveryGuarantee is {safe_text(str(value))}",
                hint="for another guarantee, write the batch with df.write in a function of your "
                "own",
            )
