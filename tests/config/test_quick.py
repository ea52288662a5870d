"""tools/quick.py: which tests belong to a change."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICK = runpy.run_path(str(ROOT / "tools" / "quick.py"))


@pytest.mark.parametrize(
    ("paths", "tests"),
    [
        (["spark_kafka_sink/records/varint.py"], ["tests/formats", "tests/records"]),
        (["spark_kafka_sink/admin/admin_client.py"], ["tests/admin"]),
        (["tests/records/test_records_varint.py"], ["tests/records/test_records_varint.py"]),
        (
            ["spark_kafka_sink/admin/a.py", "tests/admin/test_admin.py"],
            ["tests/admin"],
        ),
        (["docs/faq.md"], ["tests/docs", "tests/test_design.py"]),
        (["tests/simulation/test_simulation.py"], ["tests/simulation/test_simulation.py"]),
        (["LICENSE"], []),
    ],
)
def test_a_change_has_the_tests_of_its_rooms(paths, tests):
    assert QUICK["tests_of"](paths) == tests


def test_every_room_of_the_package_has_tests():
    rooms = {path.name for path in (ROOT / "spark_kafka_sink").iterdir() if path.is_dir()}
    for room in rooms - {"__pycache__"}:
        assert QUICK["tests_of"]([f"spark_kafka_sink/{room}/a.py"]) != [], room
