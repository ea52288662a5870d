"""``python -m tests.fuzz --minutes 10 [--only tls] [--from SEED] [--cases N]``"""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
import time
import traceback
from collections import Counter

from tests.fuzz.targets import TARGETS, attempt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long, all targets together")
    parser.add_argument(
        "--only", choices=TARGETS, action="append", help="a target; may be repeated"
    )
    parser.add_argument("--from", type=int, dest="first", help="the first seed; else at random")
    parser.add_argument("--cases", type=int, help="how many of each target, instead of minutes")
    given = parser.parse_args()
    logging.disable()
    names = given.only or list(TARGETS)
    first = secrets.randbelow(1 << 40) if given.first is None else given.first
    print(f"seeds from {first} on of {', '.join(names)}", flush=True)
    end = time.monotonic() + 60 * given.minutes
    cases, failed = dict.fromkeys(names, 0), 0
    for name in names:
        # Each has its share of the time, since a case of one takes a hundred times another's.
        share = (end - time.monotonic()) / (len(names) - names.index(name))
        until, outcomes = time.monotonic() + share, Counter[str]()
        while cases[name] < given.cases if given.cases else time.monotonic() < until:
            seed = first + cases[name]
            cases[name] += 1
            try:
                outcomes[attempt(name, seed)] += 1
            except Exception:
                failed += 1
                traceback.print_exc()
                if failed == 20:
                    print("20 failures are enough")
                    return 1
        print(
            f"{name:>10}: {cases[name]} cases, seeds {first} to {first + cases[name] - 1}",
            flush=True,
        )
        for outcome, count in sorted(outcomes.items()):
            print(f"{count:>18} {outcome}")
    print(f"{sum(cases.values())} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
