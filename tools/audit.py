"""Known vulnerabilities of the packages that lock files name, by pip-audit.

python tools/audit.py LOCK...     0: none; 1: some; 2: not every package could be looked up
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

#: As many as a line can hold.
MOST_NAMED = 5


def main(locks: list[str]) -> int:
    return max(audit(lock) for lock in locks)


def audit(lock: str) -> int:
    command = [
        str(Path(sys.executable).parent / "pip-audit"),
        *("--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off"),
        *("--requirement", lock),
    ]
    run = subprocess.run(command, capture_output=True, check=False, text=True)
    if not run.stdout.strip():  # it ends with an error's text alone
        reason = (run.stderr.strip().splitlines() or ["it said nothing"])[-1]
        print(f"{lock}: the advisories can't be reached, so nothing was looked up: {reason}")
        return 2
    return told(lock, json.loads(run.stdout)["dependencies"])


def told(lock: str, packages: list[dict]) -> int:
    """Says what pip-audit's JSON says, and gives the exit code."""
    found = [(p, v) for p in packages for v in p.get("vulns", ())]
    for package, one in found:
        mended = ", ".join(one["fix_versions"]) or "no version yet"
        print(f"{lock}: {package['name']} {package['version']}: {one['id']}, mended in {mended}")
    unseen = [p["name"] for p in packages if "skip_reason" in p]
    if unseen:
        more = ", ..." if len(unseen) > MOST_NAMED else ""
        print(
            f"{lock}: {len(unseen)} of {len(packages)} packages were not looked up: the advisory"
            f" service (pypi.org) can't be reached from here, or does not know them:"
            f" {', '.join(unseen[:MOST_NAMED])}{more}"
        )
    if not found and not unseen:
        print(f"{lock}: no known vulnerability in {len(packages)} packages")
    return 1 if found else 2 if unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
