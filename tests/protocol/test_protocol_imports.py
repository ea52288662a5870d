"""What importing this room costs a Spark task: nothing but itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("kio", "hypothesis", "pyarrow", "numpy", "google_crc32c", "asyncio")


def run(code: str) -> list[str]:
    """Which of HEAVY are loaded after ``code``, in an interpreter of its own."""
    report = f"import sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    "module",
    [
        "messages",
        "kio_codec",
        "transaction_admin_messages",
        "fetch_messages",
        "config_messages",
        "responses",
        "produce",
        "frames",
        "api_versions",
        "cluster",
        "wire",
    ],
)
def test_importing_loads_neither_kio_nor_arrow(module: str) -> None:
    assert run(f"import spark_kafka_sink.protocol.{module}") == []


def test_the_first_request_loads_kio_but_never_hypothesis() -> None:
    loaded = run(
        "from spark_kafka_sink.protocol.messages import MetadataRequest\n"
        "MetadataRequest(()).encode(12)"
    )
    assert "kio" in loaded
    assert not {"hypothesis", "pyarrow"} & set(loaded)


def test_hypothesis_can_still_be_imported_behind_it() -> None:
    loaded = run(
        "from spark_kafka_sink.protocol.messages import MetadataRequest\n"
        "MetadataRequest(()).encode(12)\n"
        "import hypothesis.strategies"
    )
    assert "hypothesis" in loaded


def test_produce_and_its_answer_need_no_kio() -> None:
    loaded = run(
        "from spark_kafka_sink.protocol.produce import ProduceRequest\n"
        "ProduceRequest(-1, 1, ()).encode(12)\n"
        "ProduceRequest(-1, 1, ()).decode(12, memoryview(bytes(6)))"
    )
    assert loaded == []
