"""Tasks of one worker process with exactly-once, over a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spark_kafka_sink.datasource.exactly_once.transactional_producers import (
    Worker,
    WorkerIds,
    producers_of_task,
)
from spark_kafka_sink.datasource.write.producer_cache import ProducerCache
from spark_kafka_sink.datasource.write.write_task import WriteTask
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.records.batch_joiner import HOLD_MS
from tests.datasource.exactly_once.transaction_plans import identity, plan
from tests.fakes.producer_world import PLAN, ProducerWorld, rows


class Tasks:
    """Runs tasks of one worker process."""

    def __init__(self, world: ProducerWorld, **plan_changes: object) -> None:
        self.world = world
        self.worker = Worker(WorkerIds(), ProducerCache())
        self.plan = plan(**plan_changes)
        self.producers: list[KafkaProducer] = []

    def run(
        self, values: Iterable[str], fails: bool = False, **who: object
    ) -> PreparedTransaction | None:
        def factory(config, cluster):
            self.producers.append(self.world.of(config, cluster))
            return self.producers[-1]

        producers = producers_of_task(
            self.plan,
            self.world.config,
            None,
            identity(**who),
            factory=factory,
            worker=self.worker,
        )

        def batches():
            for value in values:
                yield rows(value)
            if fails:
                self.world.scheduler.sleep(HOLD_MS + 100)  # the rows before it leave
                assert self.world.values(committed=False)
                raise OSError("the input broke")

        task = WriteTask(
            PLAN,
            producers,
            identity(**who),
            transaction_time=self.plan.time,
            monotonic_ms=self.world.scheduler.now_ms,
            wall_ms=self.world.scheduler.wall_ms,
        )
        return task.run(batches()).prepared

    def done(self, batch: int) -> None:
        state = replace(self.plan.state, last_done=batch)
        self.plan = replace(self.plan, state=state)

    @property
    def made(self) -> int:
        return len(self.producers)
