"""The plan of a write: options, columns and cluster. With exactly-once, also the state of the
commit log.

Spark pickles the plan separately for each task and for the commit. A change that a task makes in
its copy never reaches the commit: only commit messages are sent back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.process.package_digest import package_digest
from spark_kafka_sink.datasource.report.failed_attempts import FailedAttempts
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits
from spark_kafka_sink.records.column_plan import ColumnPlan

if TYPE_CHECKING:
    from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The plan of a batch or micro-batch. Immutable and picklable.

    - ``cluster``: the brokers' metadata from the preflight. None if the preflight was off or failed
      with a warning. At the commit and abort of a stream, it is always None.
    - ``transactions``: the plan for exactly-once. None without exactly-once. At the commit and
      abort of a stream, it is always None.
    - ``driver``: a token that identifies the Spark driver and the write
      (``process/driver_identity.py``). It is only set with exactly-once, for a stream or a write
      with txnAppId.
    - ``limits``: the topics' limits for record sizes and timestamps, if they are known.
    - ``query_name``: the option queryName, which Spark sets for a stream with a name.
    - ``failed``: the directories for the reports of failed task attempts.
    - ``package_version`` and ``package_files`` (a digest): the package on the driver.
    """

    config: SinkConfig
    columns: ColumnPlan
    cluster: Cluster | None
    transactions: TransactionPlan | None = None
    driver: str = ""
    limits: Mapping[str, TopicLimits] = field(default_factory=dict)
    query_name: str = ""
    failed: FailedAttempts = field(default_factory=FailedAttempts)
    package_version: str = __version__
    package_files: str = field(default_factory=package_digest)
