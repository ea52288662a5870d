"""Memory of one task: many gigabytes through one writer, with RSS sampled from outside.

The task runs in a process of its own as Spark's worker would: Arrow batches in, one producer with
buffer.memory=32 MiB, a topic with retention.bytes=1 GiB. Prints one JSON line: base RSS, peak RSS,
the bound of design rule 5.5 (base + buffer.memory + 2 Arrow batches + 64 MiB), and RSS over time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

import psutil

BUFFER_MEMORY = 32 * 1024 * 1024
VALUE_SIZE = 1024
ARROW_ROWS = 10_000


def task(bootstrap: str, topic: str, total_bytes: int) -> None:
    """Runs in the child: tells when the base is reached, then writes, then tells the report."""
    import pyarrow as pa

    from bench.engine_ours import arrow_batches
    from spark_kafka_sink.config import ProducerConfig
    from spark_kafka_sink.producer.kafka_producer import KafkaProducer
    from spark_kafka_sink.records.record_columns import ColumnPlan, from_record_batch

    batches = arrow_batches(VALUE_SIZE, 1, 3)
    plan = ColumnPlan(topic=topic, key_column=0, value_column=1)
    producer = KafkaProducer(
        ProducerConfig.parse({"bootstrap.servers": bootstrap, "buffer.memory": str(BUFFER_MEMORY)})
    )
    producer.start_attempt()
    serialized = [b.serialize() for b in batches]
    schema = batches[0].schema
    del batches
    print("ready", serialized[0].size, flush=True)
    sent = 0
    while sent < total_bytes:
        for message in serialized:
            # As in a worker, every Arrow batch is a new object with memory of its own.
            batch = pa.ipc.read_record_batch(pa.py_buffer(message.to_pybytes()), schema)
            producer.send_columns(from_record_batch(batch, plan, time.time_ns() // 1_000_000))
            sent += batch.nbytes
    report = producer.finish_attempt()
    producer.close(10_000)
    print("done", report.rows, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--child", action="store_true")
    args = parser.parse_args()
    total = int(args.gigabytes * 1e9)
    if args.child:
        task(args.bootstrap, args.topic, total)
        return
    command = [sys.executable, "-m", "bench.memory", "--child", "--bootstrap", args.bootstrap]
    command += ["--topic", args.topic, "--gigabytes", str(args.gigabytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as child:
        assert child.stdout is not None
        word, size = child.stdout.readline().split()
        if word != "ready":
            raise SystemExit("the task did not start")
        arrow_batch = int(size)
        process = psutil.Process(child.pid)
        base = process.memory_info().rss
        start, samples = time.monotonic(), []
        while child.poll() is None:
            try:
                samples.append((round(time.monotonic() - start, 2), process.memory_info().rss))
            except psutil.NoSuchProcess:
                break
            time.sleep(0.05)
        rest = child.stdout.read().split()
        if child.wait() != 0 or rest[:1] != ["done"]:
            raise SystemExit("the task failed")
    peak = max(rss for _, rss in samples)
    half = [rss for _, rss in samples[len(samples) // 2 :]]
    print(
        json.dumps(
            {
                "rows": int(rest[1]),
                "gigabytes": args.gigabytes,
                "seconds": samples[-1][0],
                "base": base,
                "peak": peak,
                "peak_of_second_half": max(half),
                "bound": base + BUFFER_MEMORY + 2 * arrow_batch + 64 * 1024 * 1024,
                "samples": samples[:: max(1, len(samples) // 40)],
            }
        )
    )


if __name__ == "__main__":
    main()
