"""What a task imports before its first row: not what only the driver, a user or an operator needs.

The time of it is measured by ``make release-check``; here is what that time is made of.
"""

from __future__ import annotations

import pytest

from tests.programs import run_python

_TASK = (
    "import sys, numpy, pyarrow.compute, pyspark.sql.datasource;"
    "before = set(sys.modules);"
    "import spark_kafka_sink.datasource.write.write_task, spark_kafka_sink.producer.kafka_producer;"
    "import spark_kafka_sink.config.sink_config;"
    "print(*sorted(set(sys.modules) - before))"
)
#: What may come with them that is not ours: codecs, checksums, hashes, and their like.
_OTHERS = {"difflib", "google_crc32c", "html", "lz4", "mmh3", "numpy", "cffi", "_cffi_backend"}


@pytest.fixture(scope="module")
def imported() -> set[str]:
    return set(run_python("-c", _TASK).stdout.split())


@pytest.mark.parametrize(
    "room",
    [
        "admin",
        "cli",
        "config.cross_checks",
        "config.given_option",
        "config.names.config_file",
        "config.names.foreign_options",
        "config.names.given",
        "config.names.unknown_options",
        "config.logins",
        "config.option_table",
        "config.parsing",
        "config.schema_options",
        "datasource.exactly_once",
        "datasource.foreach_batch",
        "datasource.monitoring",
        "datasource.report",
        "local_kafka",
        "network.auth",
        "network.tls",
        "protocol.log_requests",
        "protocol.messages.fetch",
        "transactions",
    ],
)
def test_a_task_does_not_import_what_it_may_never_need(imported, room):
    name = f"spark_kafka_sink.{room}"
    assert {one for one in imported if one == name or one.startswith(f"{name}.")} == set()


def test_a_task_imports_nothing_heavy_that_is_not_ours(imported):
    others = {name.partition(".")[0] for name in imported} - {"spark_kafka_sink"}
    assert others <= _OTHERS


def test_planning_with_a_json_schema_loads_no_numpy() -> None:
    """That takes as long as the rest of planning; only the binary formats need it."""
    program = (
        "import sys, spark_kafka_sink.datasource.schemas.payload_schemas,"
        " spark_kafka_sink.records.formats.json_schema; print('numpy' in sys.modules)"
    )
    assert run_python("-c", program).stdout.split() == ["False"]
