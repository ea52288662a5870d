"""What must hold before a release: the built files are checked, installed and used.

python tools/release_check.py [--no-smoke]     0: may be released; 1: the first step that failed

Runs in the environment of ``make release-check``. Builds the sdist, and the wheel out of it, twice;
checks their metadata and contents and the workflows of .github; installs the wheel without extras
in a fresh environment of each Python that is here, with the newest dependencies and with the lowest
that pyproject.toml names; counts what a task's import costs; and runs a job against a real Kafka
from the wheel alone. Needs a package index, and a JDK for the job.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
#: Of CPU, what an import of a task's modules takes beyond numpy's, pyarrow's and Spark's.
IMPORT_BUDGET_MS = 120
#: The same in units of what small classes cost, for a machine that is busy.
IMPORT_RATIO = 2.5
TASK_MODULES = (
    "spark_kafka_sink.datasource.write.write_task, spark_kafka_sink.producer.kafka_producer"
)
#: As a Go module, of a proxy and with a checksum that Go looks up.
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
#: What belongs into a wheel beside code.
IN_WHEEL = (
    "spark_kafka_sink/py.typed",
    "spark_kafka_sink/local_kafka/conf/",
    "pyspark_kprod/",
)
IN_SDIST = ("README.md", "LICENSE", "CHANGELOG.md", "DESIGN.md", "tests/", "tools/", "docs/")
NEVER = re.compile(r"(__pycache__|\.pyc$|\.venv|/artifacts/|\.hypothesis|\.pem$|\.jks$|\.env$)")


class ReleaseError(Exception):
    """Why this may not be released, in a line."""


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Standard output; ReleaseError with the end of what it said when it fails.

    Without PYTHONPATH, by which a checkout would stand before the wheel.
    """
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={name: one for name, one in os.environ.items() if name != "PYTHONPATH"} | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()[-15:]
        raise ReleaseError(f"{' '.join(map(str, command))}\n" + "\n".join(said))
    return done.stdout


def build(into: Path) -> tuple[Path, Path]:
    """The sdist and the wheel made of it."""
    run(BIN / "pyproject-build", "--no-isolation", "--outdir", into, ROOT)
    (sdist,), (wheel,) = into.glob("*.tar.gz"), into.glob("*.whl")
    return sdist, wheel


def reproducible(first: Sequence[Path], second: Sequence[Path]) -> str:
    for one, other in zip(first, second, strict=True):
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (one, other)]
        if digests[0] != digests[1]:
            raise ReleaseError(f"{one.name} has other bytes when it is built again")
    return ", ".join(f"{path.name} ({path.stat().st_size // 1024} KiB)" for path in first)


def contents(sdist: Path, wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        wheel_names = archive.namelist()
    with tarfile.open(sdist) as archive:
        sdist_names = [name.partition("/")[2] for name in archive.getnames()]
    for names, wanted, what in (
        (wheel_names, IN_WHEEL, wheel.name),
        (sdist_names, IN_SDIST, sdist.name),
    ):
        missing = [one for one in wanted if not any(name.startswith(one) for name in names)]
        unwanted = [name for name in names if NEVER.search(name)]
        if missing or unwanted:
            raise ReleaseError(f"{what}: missing {missing}, should not be there {unwanted[:5]}")
    tests = [name for name in wheel_names if name.startswith(("tests/", "bench/"))]
    if tests:
        raise ReleaseError(f"{wheel.name} brings {tests[0]}")
    return f"{len(wheel_names)} files in the wheel, {len(sdist_names)} in the sdist"


def metadata(wheel: Path) -> str:
    """Its version is the changelog's newest or the one to come, and its links lead somewhere."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (name,) = (n for n in names if n.endswith(".dist-info/METADATA"))
        found = Parser().parsestr(archive.read(name).decode())
    if not any("/licenses/LICENSE" in one for one in names):
        raise ReleaseError("the wheel brings no licence")
    if found["License-Expression"] != "Apache-2.0":
        raise ReleaseError(f"the licence is {found['License-Expression']}")
    readme = str(found.get_payload())
    relative = re.findall(r"\]\((?!https?://|#)([^)]+)\)", readme)
    if relative:
        raise ReleaseError(f"links that a package index can't follow: {relative[:3]}")
    version = str(found["Version"])
    heads = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if version not in heads and "Unreleased" not in heads:
        raise ReleaseError(f"CHANGELOG.md does not know {version}")
    tag = os.environ.get("GITHUB_REF_NAME", "")
    if os.environ.get("GITHUB_REF_TYPE") == "tag" and tag != f"v{version}":
        raise ReleaseError(f"the tag is {tag}, and the package {version}")
    return f"version {version}, {len(found.get_all('Requires-Dist') or [])} requirements"


def workflows() -> str:
    """They are what GitHub's schemas and actionlint say, and each make target they run is there."""
    checked = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    run(BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *checked)
    run(BIN / "check-jsonschema", "--builtin-schema", "vendor.dependabot",
        ROOT / ".github" / "dependabot.yml")  # fmt: skip
    go = shutil.which("go")
    if go is not None:
        run(go, "run", ACTIONLINT, *checked)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in checked:
        for target in re.findall(r"\bmake ([a-z-]+)", path.read_text()):
            if target not in targets:
                raise ReleaseError(f"{path.name}: make {target} is no target")
    linted = "with actionlint" if go else "without actionlint: no Go here"
    return f"{', '.join(path.name for path in checked)} ({linted})"


def environment(home: Path, python: str, *requirements: str | Path) -> Path:
    """A fresh environment with these installed; its interpreter."""
    run(BIN / "uv", "venv", "--quiet", "--no-python-downloads", "--python", python, home)
    found = home / "bin" / "python"
    install(found, *requirements)
    return found


def install(python: Path, *what: str | Path) -> None:
    """Compiled, as pip does it: else each process compiles anew where nothing may be written."""
    run(BIN / "uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *what)


def works(python: str) -> bool:
    """It is here, and no shim of a version manager that has none."""
    found = shutil.which(python)
    asked = [found or "", "-c", "import ensurepip"]
    return bool(found) and subprocess.run(asked, capture_output=True, check=False).returncode == 0


def versions(python: Path) -> str:
    """What is installed, but ours."""
    found = run(BIN / "uv", "pip", "list", "--python", python, "--format", "freeze").split()
    return ", ".join(one for one in found if not one.startswith("spark-kafka-sink"))


_IMPORTS = """
import time
import numpy, pyarrow.compute, pyspark.sql.datasource

def spent_on(source, times=1):
    before = time.process_time()
    for _ in range(times):
        exec(compile(source, "", "exec"), {{}})
    return 1000 * (time.process_time() - before)

classes = "class A:\\n def f(self, a): return a\\n def g(self): return [x for x in range(3)]\\n"
first = spent_on(20 * classes, 60)
ours = spent_on("import {modules}")
print(ours, (first + spent_on(20 * classes, 60)) / 2)
"""


def imports(python: Path) -> str:
    """The CPU milliseconds of a task's imports, the least of fifteen.

    Other load makes CPU time dearer, too (caches, shared cores): what 1200 small classes cost in
    the same process tells by how much. Within IMPORT_RATIO of that is within the budget.
    """
    script = _IMPORTS.format(modules=TASK_MODULES)
    runs = [run(python, "-c", script, cwd=python.parent).split() for _ in range(15)]
    spent = min(float(ours) for ours, _ in runs)
    ratio = min(float(ours) / float(classes) for ours, classes in runs)
    if spent > IMPORT_BUDGET_MS and ratio > IMPORT_RATIO:
        raise ReleaseError(f"a task's imports take {spent:.0f} ms of {IMPORT_BUDGET_MS}")
    return (
        f"{spent:.0f} ms of CPU for a task's imports (budget {IMPORT_BUDGET_MS}), {ratio:.1f} times"
        f" what small classes cost ({IMPORT_RATIO})"
    )


_ENCODES = """
import pyarrow as pa
from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.records.record_columns import ColumnPlan, from_record_batch
rows = pa.RecordBatch.from_pydict({"key": pa.array([b"a", b"b"]), "value": pa.array([b"1", b"2"])})
from_record_batch(rows, ColumnPlan("t", key_column=0, value_column=1), 0)
KafkaProducer(parse_producer_config({"bootstrap.servers": "127.0.0.1:1"})).close(0)
"""

_SMOKE = """
import confluent_kafka  # somebody else creates the topic, and counts
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from spark_kafka_sink import register
from spark_kafka_sink.local_kafka import KafkaCluster

with KafkaCluster() as kafka:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("smoke", 4, 1)])["smoke"].result(30)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    register(spark)
    rows = spark.range(1000).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": "smoke"}
    for guarantee in ("at-least-once", "exactly-once"):
        sink = rows.write.format("kprod").options(**options, deliveryGuarantee=guarantee)
        sink.mode("append").save()
    spark.stop()

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "smoke", "auto.offset.reset": "earliest",
         "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    partitions = consumer.list_topics("smoke").topics["smoke"].partitions
    consumer.assign([confluent_kafka.TopicPartition("smoke", p, 0) for p in partitions])
    ended, found = set(), []
    while len(ended) < len(partitions):
        message = consumer.poll(10)
        if message is None:
            raise SystemExit("no answer to a consumer")
        if message.error() is None:
            found.append(int(message.value()))
        else:
            ended.add(message.partition())
    consumer.close()
    if sorted(found) != sorted(2 * list(range(1000))):
        raise SystemExit(f"{len(found)} rows were read, of 2000")
    print("1000 rows written at least once, 1000 exactly once, and read back")
"""


def smoke(python: Path) -> str:
    names = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    return run(python, "-c", _SMOKE, env=names, cwd=python.parent).strip().splitlines()[-1]


def locked(name: str) -> str:
    """The version of ``name`` that the tests run with."""
    text = (ROOT / "requirements" / "dev.lock").read_text()
    found = re.search(rf"^{re.escape(name)}(?:\[[a-z,]+\])?==([^\s;]+)", text, re.MULTILINE)
    if found is None:
        raise ReleaseError(f"requirements/dev.lock has no {name}")
    return f"{name}=={found[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-smoke", action="store_true", help="no job against a real Kafka")
    smokes = not parser.parse_args().no_smoke
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        try:
            first = build(home / "1")
            sdist, wheel = first
            say("built, twice the same", reproducible(first, build(home / "2")))
            run(BIN / "twine", "check", "--strict", sdist, wheel)
            run(BIN / "check-wheel-contents", "--toplevel", "spark_kafka_sink,pyspark_kprod", wheel)
            say("contents", contents(sdist, wheel))
            say("metadata", metadata(wheel))
            say("workflows", workflows())
            pythons = [python for python in PYTHONS if works(python)]
            for number, name in enumerate(pythons):
                python = environment(home / f"new-{number}", name, wheel)
                run(python, "-c", _ENCODES, cwd=home)
                lowest = ("--resolution=lowest-direct", "--only-binary=:all:")
                named = ("--requirements", ROOT / "pyproject.toml")
                python = environment(home / f"low-{number}", name, *lowest, *named)
                install(python, "--no-deps", wheel)
                run(python, "-c", _ENCODES, cwd=home)
                say(name, f"works with the newest dependencies, and with {versions(python)}")
            if smokes:
                needed = (wheel, locked("pyspark"), locked("confluent-kafka"))
                python = environment(home / "smoke", pythons[0], *needed)
                say("imports", imports(python))
                say("a job from the wheel", smoke(python))
        except ReleaseError as error:
            print(f"not to be released: {error}", file=sys.stderr)
            return 1
    return 0


def say(step: str, what: str) -> None:
    print(f"{step}: {what}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
