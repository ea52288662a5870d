"""What importing this room costs a Spark task: nothing but itself."""

from __future__ import annotations

from tests.programs import run_python

HEAVY = ("kio", "hypothesis", "pyarrow", "numpy", "google_crc32c", "asyncio")


def run(code: str) -> list[str]:
    """Which of HEAVY are loaded after ``code``, in an interpreter of its own."""
    report = f"import sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    return run_python("-c", f"{code}\n{report}").stdout.split()


def test_importing_the_protocol_loads_neither_kio_nor_arrow() -> None:
    code = (
        "import importlib, pkgutil, spark_kafka_sink.protocol as room\n"
        "for found in pkgutil.iter_modules(room.__path__, f'{room.__name__}.'):\n"
        "    importlib.import_module(found.name)"
    )
    assert run(code) == []


def test_a_request_and_its_answer_load_their_own_message_only() -> None:
    assert "kio" not in run("import spark_kafka_sink")
    code = (
        "from spark_kafka_sink.protocol.metadata import MetadataRequest\n"
        "MetadataRequest(()).encode(12)\n"
        "import sys\n"
        "room = 'spark_kafka_sink.protocol.messages.'\n"
        "names = {n.removeprefix(room) for n in sys.modules if n.startswith(room)}\n"
        "assert names == {'metadata'}, names"
    )
    assert run(code) == []
