"""The digest of the package's files: the same in a zip, another one for other files."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

import spark_kafka_sink
from spark_kafka_sink import __version__
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.package_digest import package_digest
from spark_kafka_sink.datasource.write_plan import WritePlan
from spark_kafka_sink.records.column_plan import ColumnPlan
from tests.programs import run_python

PACKAGE = Path(spark_kafka_sink.__file__).parent
PRINT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from spark_kafka_sink.datasource import package_digest as it; "
    "assert it.__file__.startswith(sys.argv[1]), it.__file__; print(it.package_digest())"
)


def digest_at(path: Path) -> str:
    return run_python("-P", "-c", PRINT, str(path)).stdout.strip()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A directory with a copy of the package."""
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_a_zip_has_the_digest_of_the_directory(copy: Path) -> None:
    """Executors may import from what spark-submit's --py-files was given, as the wheel is."""
    path = copy / "package.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in (copy / PACKAGE.name).rglob("*"):
            packed.write(file, file.relative_to(copy))
        packed.writestr("spark_kafka_sink-0.dist-info/something.py", "")
    assert digest_at(path) == digest_at(copy) == package_digest()


def test_a_changed_file_has_another_digest(copy: Path) -> None:
    with (copy / PACKAGE.name / "base" / "version.py").open("a") as file:
        file.write("# another build\n")
    assert digest_at(copy) != package_digest()


def test_a_task_of_another_version_fails_and_names_both() -> None:
    """As after an upgrade of the driver alone."""
    config = SinkConfig.parse({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    columns = ColumnPlan(topic="t", value_column=0)
    plan = WritePlan(config, columns, None, package_version="0.0.1", package_files="")
    with pytest.raises(IllegalStateError) as raised:
        plan.write(iter(()))
    assert raised.value.kind is Kind.VERSIONS_DIFFER
    assert raised.value.message == (
        f"spark-kafka-sink is 0.0.1 on the driver and {__version__} on this executor"
    )
    assert raised.value.hint == "install the same package on both"


def test_a_task_with_other_files_fails_and_names_both() -> None:
    """Two builds between releases have one version."""
    config = SinkConfig.parse({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    columns = ColumnPlan(topic="t", value_column=0)
    plan = WritePlan(config, columns, None, package_files="0123456789ab")
    with pytest.raises(IllegalStateError) as raised:
        plan.write(iter(()))
    assert raised.value.kind is Kind.VERSIONS_DIFFER
    assert raised.value.message == (
        f"spark-kafka-sink is {__version__} with the files 0123456789ab on the driver and "
        f"{__version__} with the files {package_digest()} on this executor"
    )
