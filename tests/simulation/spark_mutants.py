"""Broken protocols, made on purpose: each must be found by the random lives.

Some are what a careless change would do (``careless_mutants.py``), some the defects that reviews
found, put back (``reviewed_mutants.py``, ``block_mutants.py``). ``make mutants`` says with which
seed each is found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.simulation import block_mutants, careless_mutants, reviewed_mutants
from tests.simulation.mutant import Mutant, mutants_of
from tests.simulation.spark_lives import SparkLifeError, live

CARELESS, REVIEWED = mutants_of(careless_mutants), mutants_of(reviewed_mutants)
OF_BLOCKS = mutants_of(block_mutants)


def found_by(mutant: Mutant, seeds: Sequence[int]) -> tuple[int, str] | None:
    """The first seed that notices it, and how; None when none does. (A seed that fails without it
    notices nothing.)
    """
    for seed in seeds:
        with mutant():
            found = _failure(seed)
        if found is not None and _failure(seed) is None:
            return seed, found
    return None


def _failure(seed: int) -> str | None:
    try:
        live(seed)
    except SparkLifeError as error:
        # (A mutant that doesn't fit the code any more breaks no invariant.)
        if not isinstance(error.__cause__, AssertionError):
            raise
        return str(error).splitlines()[0]
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.spark_mutants")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    mutants = [
        m
        for m in (*CARELESS, *REVIEWED, *OF_BLOCKS)
        if not arguments.names or any(name in m.__name__ for name in arguments.names)
    ]
    survivors = 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    for mutant in mutants:
        begun = time.monotonic()
        found = found_by(mutant, seeds)
        survivors += found is None
        told = "SURVIVES" if found is None else f"seed {found[0]:>4}  {found[1][:90]}"
        print(f"{mutant.__name__:48} {time.monotonic() - begun:>4.0f} s  {told}", flush=True)
    print(f"{len(mutants)} broken protocols, {survivors} not found by {len(seeds)} seeds")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
