"""One run of a client that takes a record a call, each with a callback, as its users write it.

``kprod`` is ``KafkaProducer.send``, whose futures are kept as long as kafka-python's are: until the
next flush. Rows are Python objects before the clock starts. Prints one JSON line.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

from bench.engine_ours import arrow_rows, new_parser

Row = tuple[bytes, bytes]
#: Sends rows, and returns when all are acknowledged, with how many callbacks were told so.
Write = Callable[[list[Row]], int]

#: Rows between two flushes.
FLUSH_ROWS = 40_000


def kprod(bootstrap: str, topic: str) -> Write:
    from spark_kafka_sink import KafkaProducer, ProducerRecord

    producer = KafkaProducer({"bootstrap.servers": bootstrap})

    def write(rows: list[Row]) -> int:
        told = 0

        def delivered(_: object, error: object) -> None:
            nonlocal told
            told += error is None

        futures = [
            producer.send(ProducerRecord(topic, value, key), delivered) for key, value in rows
        ]
        producer.flush()
        assert futures[-1].result(0).offset >= 0
        return told

    return write


def confluent(bootstrap: str, topic: str) -> Write:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
        }
    )

    def write(rows: list[Row]) -> int:
        told = 0

        def delivered(error: object, _: object) -> None:
            nonlocal told
            told += error is None

        for key, value in rows:
            producer.produce(topic, value, key, on_delivery=delivered)
            producer.poll(0)
        producer.flush(120)
        return told

    return write


def kafka_python(bootstrap: str, topic: str) -> Write:
    from kafka import KafkaProducer  # type: ignore[import-untyped]  # it has no stubs

    producer: Any = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)

    def write(rows: list[Row]) -> int:
        told = 0

        def delivered(_: object) -> None:
            nonlocal told
            told += 1

        futures = [producer.send(topic, value, key).add_callback(delivered) for key, value in rows]
        producer.flush()
        futures[-1].get(0)
        return told

    return write


CLIENTS: dict[str, Callable[[str, str], Write]] = {
    "kprod": kprod,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
}


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--client", choices=CLIENTS, default="kprod")
    args = parser.parse_args()
    given = arrow_rows(args.value_size)
    write = CLIENTS[args.client](args.bootstrap, args.topic)

    def all_rows(count: int) -> int:
        rows, told = cycle(given), 0
        for first in range(0, count, FLUSH_ROWS):
            told += write(list(islice(rows, min(FLUSH_ROWS, count - first))))
        return told

    all_rows(args.warmup)
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    told = all_rows(args.rows)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    if told != args.rows:
        raise SystemExit(f"{told} of {args.rows} rows were acknowledged")
    print(
        json.dumps(
            {
                "rows": told,
                "rows_per_second": told / seconds,
                "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                "peak_mib": after.ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
