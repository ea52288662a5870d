"""Batch jobs that write next to nothing: kprod next to a Python sink that does nothing.

What is measured is ``save()`` as a user waits for it: planning, two tasks, commit. Each round runs
every contender once, in turn, after two rounds that warm the workers. Prints one JSON line with the
milliseconds of each job, by its number of rows and by sink.
"""

from __future__ import annotations

import argparse
import json
import os
import time

from confluent_kafka.admin import AdminClient

from bench.spark_job import create, delete, rows, session, touch

WARMUP = 2
PARTITIONS = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    spark = session("")
    admin = AdminClient({"bootstrap.servers": args.bootstrap})
    topic = f"bench-jobs-{os.getpid()}"
    create(admin, topic, PARTITIONS)
    touch(args.bootstrap, topic, PARTITIONS)
    kprod = {"kafka.bootstrap.servers": args.bootstrap, "topic": topic}
    sinks: dict[str, dict[str, str]] = {"nothing": {}, "kprod": kprod}
    found: dict[str, dict[str, list[float]]] = {}
    for count in (0, 1000):
        frame = rows(spark, count, 100)
        times = found[str(count)] = {sink: [] for sink in sinks}
        for number in range(args.rounds + WARMUP):
            for sink, options in sinks.items():
                start = time.perf_counter()
                frame.write.format(sink).options(**options).mode("append").save()
                if number >= WARMUP:
                    times[sink].append(1000 * (time.perf_counter() - start))
    delete(admin, topic)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
