"""The digest of the package's files: the same in a zip, another one for other files."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import spark_kafka_sink
from spark_kafka_sink import __version__
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.plan.planned_task import PlannedTask
from spark_kafka_sink.datasource.plan.write_plan import WritePlan
from spark_kafka_sink.datasource.process.package_digest import (
    BUILT,
    digest_as_built,
    digest_of_files,
    package_digest,
    package_record,
)
from spark_kafka_sink.records.column_plan import ColumnPlan
from tests.programs import run_python
from tests.waiting import wait_for

PACKAGE = Path(spark_kafka_sink.__file__).parent
ROOT = Path(__file__).parents[2]


def built(package: Path) -> str:
    """What the build of its wheel writes."""
    build: Callable[[Path], tuple[str, str]] = runpy.run_path(
        str(ROOT / "tools" / "package_files.py")
    )["built"]
    name, text = build(package)
    assert name == BUILT
    return text


PRINT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from spark_kafka_sink.datasource.process import package_digest as it; "
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


# --- the digest that a wheel brings ---------------------------------------------------------------


@pytest.fixture
def installed(copy: Path) -> tuple[Path, Path]:
    """A package as an installer leaves it, and the wheel's RECORD, which it writes last."""
    package, record = copy / PACKAGE.name, copy / "RECORD"
    (package / BUILT).write_text(built(package))
    wait_for_later_than(copy, package / BUILT)
    record.write_text("")
    wait_for_later_than(copy, record)
    return package, record


def wait_for_later_than(directory: Path, file: Path) -> None:
    """A file that is written from now on has a later time than ``file``."""

    def is_later() -> bool:
        (directory / "clock").write_text("")
        return (directory / "clock").stat().st_ctime_ns > file.stat().st_ctime_ns

    wait_for(is_later, 30, "a tick of the file system's clock")


def test_an_installed_wheel_brings_its_digest(installed: tuple[Path, Path]) -> None:
    package, _ = installed
    assert digest_as_built(*installed) == digest_of_files(package) == package_digest()


def another_byte(package: Path) -> None:
    """Of the same size, and with the time of before."""
    file = package / "base" / "version.py"
    before = file.stat()
    file.write_bytes(file.read_bytes()[:-1] + b"#")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": another_byte,
    "a new file": lambda package: (package / "more.py").write_text(""),
    "a missing file": lambda package: (package / "base" / "version.py").unlink(),
    "no digest": lambda package: (package / BUILT).unlink(),
    "a damaged digest": lambda package: (package / BUILT).write_text("{"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_files_of_a_wheel_are_read(
    installed: tuple[Path, Path], change: Callable[[Path], object]
) -> None:
    change(installed[0])
    assert digest_as_built(*installed) is None


def test_files_without_a_wheels_record_are_read(installed: tuple[Path, Path]) -> None:
    package, record = installed
    record.unlink()
    assert digest_as_built(package, record) is None


def test_the_build_of_a_wheel_writes_the_digest(tmp_path: Path) -> None:
    run_python("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path), cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        written = json.loads(archive.read(f"{PACKAGE.name}/{BUILT}"))
        archive.extractall(tmp_path)
    package = tmp_path / PACKAGE.name
    assert written == json.loads(built(package))
    (record,) = tmp_path.glob("*.dist-info/RECORD")
    assert record == package_record(package)


def test_a_task_of_another_version_fails_and_names_both() -> None:
    """As after an upgrade of the driver alone."""
    config = parse_sink_config({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    columns = ColumnPlan(topic="t", value_column=0)
    plan = WritePlan(config, columns, None, package_version="0.0.1", package_files="")
    with pytest.raises(IllegalStateError) as raised:
        PlannedTask(plan).run(iter(()))
    assert raised.value.kind is Kind.VERSIONS_DIFFER
    assert raised.value.message == (
        f"spark-kafka-sink is 0.0.1 on the driver and {__version__} on this executor"
    )
    assert raised.value.hint == "install the same package on both"


def test_a_task_with_other_files_fails_and_names_both() -> None:
    """Two builds between releases have one version."""
    config = parse_sink_config({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    columns = ColumnPlan(topic="t", value_column=0)
    plan = WritePlan(config, columns, None, package_files="0123456789ab")
    with pytest.raises(IllegalStateError) as raised:
        PlannedTask(plan).run(iter(()))
    assert raised.value.kind is Kind.VERSIONS_DIFFER
    assert raised.value.message == (
        f"spark-kafka-sink is {__version__} with the files 0123456789ab on the driver and "
        f"{__version__} with the files {package_digest()} on this executor"
    )
