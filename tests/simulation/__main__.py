"""``python -m tests.simulation --seeds 20000 [--from K] [--trace]``"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from tests.simulation.results_page import table, write_section
from tests.simulation.run import LifeError, live
from tests.simulation.scheduler import START_MS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many lives")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--trace", action="store_true", help="print all that happened")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    parser.add_argument("--page", action="store_true", help="write the result to RESULTS.md")
    given = parser.parse_args()
    # Thousands of lives lose thousands of connections.
    logging.disable()
    fired: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    failed = turns = simulated = 0
    began = time.monotonic()
    for seed in range(given.first, given.first + given.seeds):
        try:
            world = live(seed)
        except LifeError as failure:
            print(failure, flush=True)
            failed += 1
            if not given.keep_going:
                return 1
            continue
        if given.trace:
            print(world.life, *world.trace, sep="\n")
        fired += world.fired
        outcomes += world.outcomes()
        turns += world.scheduler.turns
        simulated += world.scheduler.now - START_MS
    seconds = time.monotonic() - began
    result = (
        f"{given.seeds} lives from seed {given.first}, {failed} failed; {turns} turns,"
        f" {simulated / 3_600_000:.1f} simulated hours in {seconds:.0f} s"
    )
    happened = sorted(outcomes.items()) + sorted(fired.items())
    print(result)
    for name, count in happened:
        print(f"  {count:>9} {name}")
    if given.page:
        call = f"make simulate SEEDS={given.seeds} FROM={given.first}"
        write_section("Producers", call, f"{result}.\n\n{table('what happened | times', happened)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
