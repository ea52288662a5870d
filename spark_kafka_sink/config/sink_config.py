"""The configuration of one ``format("kprod")`` write: the options of its producers, and the options
of the sink itself.

``parsing`` creates a :class:`SinkConfig` on the driver. Tasks unpickle it, and need not import the
modules that parse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from spark_kafka_sink.base.topic_name import COMMIT_LOG_TOPIC
from spark_kafka_sink.config.named_columns import NamedColumns
from spark_kafka_sink.config.producer_config import ProducerConfig

if TYPE_CHECKING:
    from spark_kafka_sink.config.changelog import ChangeOptions
    from spark_kafka_sink.config.schema_options import SchemaOptions

#: An option that the package sets itself (``datasource/write/write_context.py``).
TXN_CONTEXT = "txnContext"
#: An option that ``backfill`` sets itself (``datasource/jobs/backfill_ledger.py``, "Two callers").
TXN_GENERATION = "txnGeneration"


class DeliveryGuarantee(StrEnum):
    """The delivery guarantee of each row (option ``deliveryGuarantee``).

    With ``exactly-once``, consumers with ``isolation.level=read_committed`` see each row once. With
    ``at-least-once``, no row is lost, but a row can be written twice. With ``none``, rows can be
    lost or written twice.
    """

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class Preflight(StrEnum):
    """The values of the option ``preflight``.

    Before the first task, the driver checks whether a broker responds, whether the topic exists,
    and whether the principal may write to it. If a check fails, ``required`` fails the write, and
    ``warn`` logs a warning. With ``off``, the driver does not check.
    """

    REQUIRED = "required"
    WARN = "warn"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOptions:
    """The options of dead letters. A dead letter is a record in a separate topic, in place of a row
    that can't be sent.

    ``replicas`` is None for the brokers' default. ``max_records`` and ``max_fraction`` are None if
    there is no such limit. ``max_fraction`` is a share of the incoming rows, from 0 to 1.
    """

    topic: str
    replicas: int | None
    context_headers: bool
    log: bool
    log_messages: bool
    max_records: int | None
    max_fraction: float | None
    max_value_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """The configuration of one ``format("kprod")`` write.

    A field that is named like an option (``report_path`` for ``reportPath``, see
    ``Option.attribute``) has the user's value of that option, or its default.
    """

    producer: ProducerConfig
    topic: str | None
    #: The effective guarantee: "none" if another option switches idempotence off.
    delivery_guarantee: DeliveryGuarantee
    #: None if the option is not set: then the mode decides, see :meth:`preflight_for`.
    preflight: Preflight | None
    named_columns: NamedColumns
    #: None if the rows are not changes of a table.
    changes: ChangeOptions | None
    #: None if no format has a schema, and always in tasks: the driver fetches the schemas.
    schemas: SchemaOptions | None
    #: Limits of the whole write, and the largest number of tasks that run at the same time. None
    #: means no limit, here and in the next two fields.
    max_records_per_second: int | None
    max_bytes_per_second: int | None
    tasks_at_once: int | None
    #: The new connections of the whole write to one broker.
    connections_per_second: int | None
    max_leaders_per_task: int | None
    #: None with errors.tolerance=none.
    dead_letters: DeadLetterOptions | None
    report_path: str | None
    report_topic: str | None
    report_listeners: tuple[str, ...]
    progress_listeners: tuple[str, ...]
    progress_topic: str | None
    #: None if the option is not set. This option and the options below have an effect with
    #: exactly-once only.
    transactional_id_prefix: str | None
    txn_app_id: str | None
    txn_version: int | None
    #: See ``datasource/write/write_context.py``.
    txn_context: str | None
    #: See ``datasource/exactly_once/transaction_plan.py``.
    txn_generation: int | None
    verify_replays: bool
    offsets_group: str | None
    #: "refuse" or "allow".
    offsets_group_in_use: str
    checkpoint_location: str | None
    commit_log_topic: str
    warnings: tuple[str, ...] = field(compare=False, repr=False)
    #: Equal for equal options (see ``parsing``); for reports.
    fingerprint: str = field(compare=False)

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE

    @property
    def log_topics(self) -> tuple[str, ...]:
        """The commit log's topic of this write, and the default commit log's topic. Rows must not
        be written to these topics.
        """
        return tuple({self.commit_log_topic, COMMIT_LOG_TOPIC})

    def preflight_for(self, *, streaming: bool) -> Preflight:
        """The value of the option ``preflight``. If the option is not set, the default is ``warn``
        for a stream without exactly-once, and ``required`` for all other writes.
        """
        if self.preflight is not None:
            return self.preflight
        return Preflight.WARN if streaming and not self.is_exactly_once else Preflight.REQUIRED
