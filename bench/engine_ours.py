"""One run of our engine: Arrow batches in, acknowledgements out, in this one process.

Prints one JSON line: rows, seconds, rows per second, CPU seconds, batches and requests, how
long a batch waited for its request (ms, in the mean), and the process's peak of resident memory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import resource
import time

import pyarrow as pa

from spark_kafka_sink import KafkaProducer

ARROW_ROWS = 10_000  # Spark's spark.sql.execution.arrow.maxRecordsPerBatch


def arrow_batches(value_size: int, count: int, seed: int) -> list[pa.RecordBatch]:
    """``count`` batches as Spark sends them: a 12-byte key and a value of letters and digits."""
    rng = random.Random(seed)
    alphabet = b"abcdefghijklmnopqrstuvwxyz0123456789"
    table = bytes(alphabet[i % len(alphabet)] for i in range(256))
    batches = []
    for _ in range(count):
        keys = [b"%012d" % rng.randrange(10**9) for _ in range(ARROW_ROWS)]
        noise = rng.randbytes(ARROW_ROWS * value_size).translate(table)
        values = [noise[i * value_size : (i + 1) * value_size] for i in range(ARROW_ROWS)]
        batches.append(
            pa.record_batch(
                {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
            )
        )
    return batches


def arrow_rows(value_size: int) -> list[tuple[bytes, bytes]]:
    """Keys and values of such batches as Python objects, for clients that take a record a call."""
    return [
        (key, value)
        for batch in arrow_batches(value_size, 4, 7)
        for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    ]


def new_parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments of one run of an engine."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--value-size", type=int, default=100)
    return parser


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--option", action="append", default=[], help="name=value, Java's names")
    args = parser.parse_args()
    options = {"bootstrap.servers": args.bootstrap}
    options.update(option.split("=", 1) for option in args.option)
    batches = arrow_batches(
        args.value_size, max(4, min(50, 5_000_000 // args.value_size // 1000)), 7
    )
    producer = KafkaProducer(options)

    def write(rows: int) -> None:
        producer.start_attempt()
        some = itertools.islice(itertools.cycle(batches), -(-rows // ARROW_ROWS))
        if hasattr(producer, "send_batches"):
            producer.send_batches(some, args.topic)
            return
        for batch in some:  # a package from before it had that, for the part against
            producer.send_batch(batch, args.topic)

    write(max(args.warmup, ARROW_ROWS))
    producer.finish_attempt()
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    write(args.rows)
    report = producer.finish_attempt()
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    producer.close(10_000)
    print(
        json.dumps(
            {
                "rows": report.rows,
                "seconds": seconds,
                "rows_per_second": report.rows / seconds,
                "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                "batches": report.batches,
                "requests": report.requests,
                "queue_ms": report.queue_ms / max(1, report.batches),
                "peak_mib": after.ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
