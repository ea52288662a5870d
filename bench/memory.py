"""Memory of one Spark task: many gigabytes through ``kprod``, with its worker's RSS sampled.

One task (local[1], one partition) writes generated rows of 1 KB with buffer.memory=32 MiB into a
topic with retention.bytes=1 GiB. A write of one row comes first, into the same worker: what it
leaves is the base. Prints one JSON line: base RSS, peak RSS, the bound of rule R5 (base +
buffer.memory + 2 Arrow batches + 64 MiB), and RSS over time.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from contextlib import suppress

import psutil
from confluent_kafka.admin import AdminClient

from bench.spark_job import rows, session
from tests.programs import is_python

BUFFER_MEMORY = 32 * 1024 * 1024
VALUE_SIZE = 1024
#: Spark's spark.sql.execution.arrow.maxRecordsPerBatch, each row with a key of up to 12 bytes.
ARROW_BATCH = 10_000 * (VALUE_SIZE + 12 + 8)


def workers() -> list[psutil.Process]:
    """Spark's Python workers and their daemon: below the JVM, below this process."""
    return [p for p in psutil.Process().children(recursive=True) if is_python(p)]


def largest() -> int:
    """Resident bytes of the largest worker; 0 when there is none."""
    sizes = [0]
    for process in workers():
        with suppress(psutil.NoSuchProcess):
            sizes.append(process.memory_info().rss)
    return max(sizes)


class Sampler(threading.Thread):
    """The largest worker's resident bytes, twenty times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, int]] = []
        self._ended = threading.Event()

    def run(self) -> None:
        start = time.monotonic()
        while not self._ended.wait(0.05):
            rss = largest()
            self.samples.append((round(time.monotonic() - start, 2), rss))

    def end(self) -> list[tuple[float, int]]:
        self._ended.set()
        self.join()
        return self.samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--gigabytes", type=float, default=20.0)
    args = parser.parse_args()
    count = int(args.gigabytes * 1e9 / (VALUE_SIZE + 12))
    spark = session("", master="local[1]")

    def write(rows_: int) -> None:
        frame = rows(spark, rows_, VALUE_SIZE, partitions=1)
        frame.write.format("kprod").options(
            **{
                "kafka.bootstrap.servers": args.bootstrap,
                "topic": args.topic,
                "kafka.buffer.memory": str(BUFFER_MEMORY),
            }
        ).mode("append").save()

    write(1)
    base = largest()
    sampler = Sampler()
    sampler.start()
    write(count)
    samples = sampler.end()
    admin = AdminClient({"bootstrap.servers": args.bootstrap})
    ends = _end_offsets(admin, args.bootstrap, args.topic)
    if ends != count + 1:
        raise SystemExit(f"{ends} records arrived, {count + 1} were written")
    spark.stop()
    print(
        json.dumps(
            {
                "rows": count,
                "gigabytes": args.gigabytes,
                "seconds": samples[-1][0],
                "base": base,
                "peak": max(rss for _, rss in samples),
                "peak_of_second_half": max(rss for _, rss in samples[len(samples) // 2 :]),
                "bound": base + BUFFER_MEMORY + 2 * ARROW_BATCH + 64 * 1024 * 1024,
                "samples": samples[:: max(1, len(samples) // 40)],
            }
        )
    )


def _end_offsets(admin: AdminClient, bootstrap: str, topic: str) -> int:
    """Records ever written: retention takes old ones away, but never an offset."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    partitions = admin.list_topics(topic, 10).topics[topic].partitions
    total = sum(
        consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in partitions
    )
    consumer.close()
    return int(total)


if __name__ == "__main__":
    main()
