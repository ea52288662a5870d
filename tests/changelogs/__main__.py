"""``make changelogs``: random changes of a Delta table, a stream of them into a compacted topic,
and killed drivers; at the end the topic is the table, key by key.

    python -m tests.changelogs --changes 1000 --keys 10000 --kills 20

The table is changed while the stream runs. Each second driver is killed at a random time, the
others at a random request or response of a commit (``kills.py``).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.changelogs.kills import Place, moment
from tests.changelogs.proof import CLEANED, CLEANER, Proof, difference
from tests.exactly_once.harness import proxied_cluster
from tests.simulation.results_page import table, write_section

PAGE = Path(__file__).with_name("RESULTS.md")
#: In minutes.
_DAY = 1440.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--changes", type=int, default=1000, help="statements that change the table"
    )
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=_DAY, help="no change is made after them")
    parser.add_argument("--limit", type=int, help="maxFilesPerTrigger, to see what it does")
    parser.add_argument("--page", action="store_true", help="write the result to RESULTS.md")
    given = parser.parse_args()
    begun = time.monotonic()
    random = Random(given.seed)
    home = Path(tempfile.mkdtemp(prefix="kprod-changelogs-"))
    with proxied_cluster(1, home, overrides=CLEANER) as world:
        topic = world.kafka.unique_topic("delta", 3, CLEANED)
        proof = Proof(
            world, topic, given.seed, given.keys, given.changes,
            seconds=60 * given.minutes, limit=given.limit,
        )  # fmt: skip
        with proof:
            for number in range(given.kills):
                # Somewhere in its part of the changes; the last part is left to the last driver.
                part = number + random.random()
                version = int(given.changes * part / (given.kills + 1))
                kill = proof.kill(version, moment(random, number))
                if kill is None:
                    break
                spent = proof.seconds_of_statements() / kill.version
                print(
                    f"kill {number + 1}, {kill.moment}: {kill.death}; table at {kill.version},"
                    f" {spent:.2f} CPU seconds for each statement"
                )
                sys.stdout.flush()
            proof.finish()
        said, is_right = _report(proof, time.monotonic() - begun)
    print(said)
    if given.page:
        names = ("changes", "keys", "kills", "seed")
        call = " ".join(f"{name.upper()}={getattr(given, name)}" for name in names)
        if given.minutes < _DAY:
            call += f" MINUTES={given.minutes:g}"
        write_section("A Delta table", f"make changelogs {call}", said, PAGE)
    return int(not is_right)


def _report(proof: Proof, seconds: float) -> tuple[str, bool]:
    """What was found, and whether the topic is the table."""
    rows, written = proof.table(), proof.records()
    cleaned = proof.cleaned()
    batches = proof.micro_batches()
    statements = proof.statements()
    changes = sum(statements.values())
    cpu = proof.seconds_of_statements()
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(statements.items()))
    tombstones = sum(value is None for _, value in written)
    again = sum(times > 1 for times in batches.values())
    counted = (
        ("statements that changed the table", f"{changes} ({kinds})"),
        ("commits of the table", proof.version()),
        ("CPU seconds of a statement", f"{cpu / changes:.2f}"),
        ("micro-batches", f"{len(batches)}, {again} of them begun again"),
        ("killed drivers", len(proof.kills)),
        ("records at the end", f"{len(written)}, {tombstones} of them tombstones"),
        ("records after the cleaner", len(cleaned)),
        ("rows of the table", len(rows)),
        ("minutes", f"{seconds / 60:.0f}"),
    )
    said = [table("what | number", counted), ""]
    found = {"topic": difference(written, rows), "cleaned topic": difference(cleaned, rows)}
    for name, wrong in found.items():
        keys = ", ".join(f"{kind} {len(keys)}: {keys[:5]!r}" for kind, keys in wrong.items())
        said.append(f"* {name}: {keys or 'equal to the table, key by key'}")
    places = Counter(kill.death.place for kill in proof.kills)
    at = ((place.value, places[place]) for place in Place)
    kills = (
        (n + 1, k.version, k.moment, k.moment.victim.value, k.death.batch, k.death)
        for n, k in enumerate(proof.kills)
    )
    head = "kill | table at | moment | killed | micro-batch | where the driver was"
    said += ["", table("where the driver was | kills", at), "", table(head, kills)]
    return "\n".join(said), not any(found.values())


if __name__ == "__main__":
    sys.exit(main())
