"""``make changelogs``: random changes of a Delta table, a stream of them into a compacted topic,
and killed drivers; at the end the topic is the table, key by key.

    python -m tests.changelogs --changes 1000 --keys 10000 --kills 20

The table is changed while the stream runs. A driver is killed before a write, during it, or after
it, in turn. With ``--minutes`` no driver is started to be killed after this time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from spark_kafka_sink.local_kafka import KafkaCluster
from tests.changelogs.proof import CLEANED, Proof, difference
from tests.real_kafka import RealKafka

_KILLED = ("after", "before", "during")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--changes", type=int, default=1000, help="commits of the table")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--limit", type=int, help="maxFilesPerTrigger, to see what it does")
    given = parser.parse_args()
    deadline = time.monotonic() + 60 * given.minutes
    with (
        tempfile.TemporaryDirectory(prefix="kprod-changelogs-") as home,
        KafkaCluster(overrides={"log.cleaner.backoff.ms": "500"}) as cluster,
    ):
        topic = RealKafka(cluster.bootstrap).unique_topic("delta", 3, CLEANED)
        proof = Proof(Path(home), cluster.bootstrap, topic, given.seed, given.keys, given.limit)
        for number in range(given.kills):
            if time.monotonic() > deadline:
                break
            versions = given.changes * (number + 1) // (given.kills + 1)
            run = proof.run(versions, _KILLED[number % len(_KILLED)], timeout=86_400)
            print(f"kill {number + 1}: table at {proof.version()}, begun {run.all('begun')}")
            sys.stdout.flush()
        is_late = time.monotonic() > deadline
        proof.run(proof.version() if is_late else given.changes, timeout=86_400)
        return _report(proof)


def _report(proof: Proof) -> int:
    table, written = proof.table(), proof.records()
    wrong = difference(written, table)
    cleaned = proof.cleaned()
    wrong_cleaned = difference(cleaned, table)
    begun = {number for run in proof.runs for number in run.all("begun")}
    print(
        f"commits {proof.version()}, killed drivers {len(proof.runs) - 1}, micro-batches"
        f" {len(begun)}, begun again {proof.again()}; records {len(written)}, tombstones"
        f" {sum(value is None for _, value in written)}, after the cleaner {len(cleaned)};"
        f" rows of the table {len(table)}"
    )
    for name, found in (("topic", wrong), ("cleaned topic", wrong_cleaned)):
        said = ", ".join(f"{kind} {len(keys)}: {keys[:5]}" for kind, keys in found.items())
        print(f"{name}: {said or 'equal to the table, key by key'}")
    return int(bool(wrong or wrong_cleaned))


if __name__ == "__main__":
    sys.exit(main())
