"""A task of a stream's micro-batch, run where it is called."""

from __future__ import annotations

from spark_kafka_sink.datasource.exactly_once.transactional_producers import producers_of_task
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.write_task import WriteTask
from spark_kafka_sink.records.column_plan import ColumnPlan
from tests.fakes.producer_world import rows


def stream_task(config, plan, batch_id, values, run_id="run-1"):
    """As a Spark worker would run it; its commit message."""
    identity = TaskIdentity(query_id="query-1", run_id=run_id, batch_id=batch_id)
    producers = producers_of_task(plan, config.producer, None, identity)
    columns = ColumnPlan(topic=config.topic, value_column=0)
    task = WriteTask(columns, producers, identity, transaction_time=plan.time)
    return task.run(iter([rows(*values)]))
