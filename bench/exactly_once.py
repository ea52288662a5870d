"""What exactly-once costs: the driver's commit, a large job, a small one, and micro-batches.

Prints one JSON line: seconds of a commit by number of transactions; for jobs and micro-batches the
figures of exactly-once and of at-least-once, in turn in one run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame

from bench.microbatch import run
from bench.spark_job import create, delete, rows, session, touch
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, log_key

PARTITIONS = 12
GUARANTEES = ("exactly-once", "at-least-once")


def committed(bootstrap: str, topic: str) -> int:
    """Records that a read_committed consumer is given: counted, not computed from offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found, ended = 0, 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is None:
                found += 1
            else:
                ended += 1
    consumer.close()
    return found


def commit_seconds(bootstrap: str, topic: str, count: int) -> float:
    """One batch of ``count`` prepared transactions: checked, decided, ended."""
    job = uuid.uuid4().hex
    options = {"bootstrap.servers": bootstrap, "transaction.timeout.ms": "600000"}
    key = log_key("bench", job)
    prepared = []
    for number in range(count):
        transactional_id = str(TransactionalId(key, job, "bench", number, 0))
        with KafkaProducer(options | {"transactional.id": transactional_id}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(ProducerRecord(topic, b"row", partition=number % PARTITIONS))
            prepared.append(producer.prepare())
    with ExactlyOnceDriver(parse_producer_config(options), "__kprod_commits") as driver:
        state = driver.plan(key)
        owner = Owner(key, job, "", state.generation, Numbering.ONCE)
        start = time.perf_counter()
        driver.commit(owner, Batch(0, tuple(prepared)))
        return time.perf_counter() - start


def job_seconds(frame: DataFrame, bootstrap: str, topic: str, guarantee: str) -> float:
    start = time.perf_counter()
    frame.write.format("kprod").options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "topic": topic,
            "deliveryGuarantee": guarantee,
        }
    ).mode("append").save()
    return time.perf_counter() - start


def jobs(admin: AdminClient, bootstrap: str, count: int, rounds: int) -> dict[str, list[float]]:
    spark = session("")
    frame = rows(spark, count, 100)
    found: dict[str, list[float]] = {guarantee: [] for guarantee in GUARANTEES}
    for number in range(rounds + 1):
        for guarantee in GUARANTEES:
            topic = f"bench-{guarantee}-{count}-{number}"
            create(admin, topic, PARTITIONS)
            touch(bootstrap, topic, PARTITIONS)
            seconds = job_seconds(frame, bootstrap, topic, guarantee)
            if count <= 100_000 and committed(bootstrap, topic) != count + PARTITIONS:
                raise SystemExit(f"{topic}: not {count} rows")
            delete(admin, topic)
            if number:  # the first round warms up
                found[guarantee].append(seconds)
            print(f"{number} {guarantee}: {count} rows in {seconds:.2f} s", file=sys.stderr)
    return found


def micro_batches(
    admin: AdminClient, bootstrap: str, batches: int, rounds: int
) -> dict[str, list[list[float]]]:
    spark = session("")
    topic = "bench-microbatch"
    create(admin, topic, PARTITIONS)
    found: dict[str, list[list[float]]] = {guarantee: [] for guarantee in GUARANTEES}
    for number in range(rounds):
        for guarantee in GUARANTEES:
            options = {
                "kafka.bootstrap.servers": bootstrap,
                "topic": topic,
                "deliveryGuarantee": guarantee,
            }
            if guarantee == "exactly-once":
                options["transactionalIdPrefix"] = f"bench-{number}"
            found[guarantee].append(run(spark, "kprod", options, batches)[0])
        print(f"micro-batches: round {number} done", file=sys.stderr)
    delete(admin, topic)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=30_000_000)
    parser.add_argument("--batches", type=int, default=60)
    args = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": args.bootstrap})
    create(admin, "bench-commits", PARTITIONS)
    commits = {
        str(count): [
            commit_seconds(args.bootstrap, "bench-commits", count) for _ in range(args.rounds)
        ]
        for count in (200, 2000)
    }
    print(f"commits: {commits}", file=sys.stderr)
    found = {
        "commits": commits,
        "micro-batches": micro_batches(admin, args.bootstrap, args.batches, args.rounds),
        "small": jobs(admin, args.bootstrap, 1_000, 2 * args.rounds),
        "large": jobs(admin, args.bootstrap, args.rows, args.rounds),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
