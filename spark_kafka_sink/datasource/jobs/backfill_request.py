"""The requests that ``backfill`` sends to the Spark driver, and the driver's answers.

The user's process may be a Spark Connect client that can't reach the brokers. So the driver reads
and writes the records of the backfill (``backfill_ledger.py``):

- The user's process calls the methods of :class:`LedgerOnDriver`. Each call is a request with the
  options of the write.
- :func:`schema_with_state` answers the request, in a Python process of the driver.
- ``process/asked_of_driver.py`` carries the request and the answer. An error comes back with its
  message, hint and kind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.config.names.given_options import given_options
from spark_kafka_sink.config.names.unknown_options import PREFIX
from spark_kafka_sink.config.option import OptionText
from spark_kafka_sink.config.option_table import SINK_OPTIONS
from spark_kafka_sink.config.parsing import sink_config_of
from spark_kafka_sink.datasource.jobs.backfill_ledger import (
    BegunStep,
    Caller,
    Ledger,
    Progress,
    Settled,
)
from spark_kafka_sink.datasource.jobs.backfill_plan import BackfillPlan
from spark_kafka_sink.datasource.process.asked_of_driver import schema_with_text, text_or_error
from spark_kafka_sink.datasource.process.process_logging import configure_logging
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import Payload
from spark_kafka_sink.transactions.exactly_once import shared_driver
from spark_kafka_sink.transactions.transactional_ids import DEFAULT_PREFIX, check_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

#: The option of the data source that carries a request.
BACKFILL: Final = "backfill"
#: The prefix of the producer's options that determine the partition of a row.
_CONTENT: Final = "partitioner"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Claimed:
    """The driver's answer to a call of ``Ledger.claim``.

    - ``plan`` is the recorded plan. It is None if no plan is recorded, or if another call owns the
      backfill.
    - ``facts`` are the options that change the written rows.
    - ``timeout_ms`` is transaction.timeout.ms.
    """

    progress: Progress
    plan: BackfillPlan | None
    facts: Mapping[str, str]
    timeout_ms: int


class LedgerOnDriver:
    """The methods of :class:`Ledger` as requests to the Spark driver, with the same errors.
    Thread-safe.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        caller: Caller,
        options: Mapping[str, OptionText],
    ) -> None:
        self._spark = spark
        self._options = dict(options)
        self._name = name
        self._caller = caller

    def claim(self, gone: Mapping[str, int | None]) -> Claimed:
        found = self._ask("claim", gone=dict(gone))
        plan = found["plan"]
        return Claimed(
            Progress.decode(found["progress"]),
            None if plan is None else BackfillPlan.decode(plan),
            found["facts"],
            found["timeoutMs"],
        )

    def begin(self, plan: BackfillPlan) -> Progress:
        return Progress.decode(self._ask("begin", plan=plan.encode())["progress"])

    def step(self, end: int) -> BegunStep:
        return BegunStep(**self._ask("step", end=end))

    def settle(self, ms: int) -> Settled:
        return _settled(self._ask("settle", ms=ms))

    def fence(self) -> Settled:
        return _settled(self._ask("fence"))

    def beat(self) -> None:
        self._ask("beat")

    def release(self) -> None:
        self._ask("release")

    def _ask(self, call: str, **arguments: object) -> Json:
        request = {"call": call, "name": self._name, "caller": asdict(self._caller), **arguments}
        options = {**self._options, BACKFILL: json.dumps(request)}
        return json.loads(text_or_error(self._spark, options, "backfill"))  # type: ignore[no-any-return] # of our own making


def schema_with_state(options: Mapping[str, str]) -> StructType:
    """Answers a request of :class:`LedgerOnDriver` on the driver. The user's process reads the
    answer from the metadata of the returned schema (``process/asked_of_driver.py``).
    """
    configure_logging()

    def answer() -> str:
        given = dict(options)
        request = json.loads(given.pop(BACKFILL.lower()))
        return json.dumps(_answered(request, given))

    return schema_with_text(answer)


def _answered(request: Json, options: Mapping[str, str]) -> Json:
    given = given_options(options, PREFIX)
    config = sink_config_of(given)
    prefix = check_part("transactionalIdPrefix", config.transactional_id_prefix or DEFAULT_PREFIX)
    name, caller = request["name"], Caller(**request["caller"])
    with shared_driver(config.producer, config.commit_log_topic) as driver:
        log = CommitLog(driver.client, config.commit_log_topic)
        ledger = Ledger(driver.client, log, driver.plan, prefix, name)
        match request["call"]:
            case "claim":
                progress = ledger.claim(caller, request["gone"])
                is_alone = progress.caller is not None and progress.caller.id == caller.id
                _, plan = ledger.read() if is_alone else (None, None)
                facts = {n: str(g.value) for n, g in given.own.items() if _changes_rows(n)}
                facts |= {
                    PREFIX + n: str(g.value)
                    for n, g in given.producer.items()
                    if n.startswith(_CONTENT)
                }
                return {
                    "progress": progress.encode(),
                    "plan": None if plan is None else plan.encode(),
                    "facts": facts,
                    "timeoutMs": config.producer.transaction_timeout_ms,
                }
            case "begin":
                progress = ledger.begin(caller, BackfillPlan.decode(request["plan"]))
            case "step":
                return asdict(ledger.step(caller, request["end"]))
            case "settle":
                return _settled_fields(ledger.settle(caller, request["ms"]))
            case "fence":
                return _settled_fields(ledger.fence(caller))
            case "beat":
                progress = ledger.beat(caller)
            case _:
                ledger.release(caller)
                progress = Progress()
        return {"progress": progress.encode()}


def _changes_rows(option: str) -> bool:
    return SINK_OPTIONS[option].of_one_write


def _settled_fields(settled: Settled) -> Json:
    one = settled.payload
    payload = None if one is None else [one.rows, one.bytes, one.topic]
    return {"progress": settled.progress.encode(), "payload": payload}


def _settled(found: Json) -> Settled:
    payload = found["payload"]
    return Settled(
        Progress.decode(found["progress"]), None if payload is None else Payload(*payload)
    )
