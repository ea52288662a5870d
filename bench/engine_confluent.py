"""One run of confluent-kafka's ``produce()`` loop, as its users write it. Prints one JSON line."""

from __future__ import annotations

import json
import resource
import time

from confluent_kafka import Producer

from bench.engine_ours import arrow_rows, new_parser


def main() -> None:
    args = new_parser(__doc__).parse_args()
    # Rows as Python objects before the clock starts: the loop is what is timed, not the rows.
    rows = arrow_rows(args.value_size)
    producer = Producer(
        {
            "bootstrap.servers": args.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
        }
    )

    def write(count: int) -> None:
        topic = args.topic
        produce = producer.produce
        sent = 0
        while sent < count:
            for key, value in rows[: count - sent]:
                while True:
                    try:
                        produce(topic, value, key)
                        break
                    except BufferError:
                        producer.poll(0.01)
            sent += min(len(rows), count - sent)
            producer.poll(0)
        if producer.flush(120) != 0:
            raise SystemExit("confluent-kafka did not deliver all rows")

    write(max(args.warmup, 10_000))
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    write(args.rows)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "rows": args.rows,
                "seconds": seconds,
                "rows_per_second": args.rows / seconds,
                "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                "peak_mib": after.ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
