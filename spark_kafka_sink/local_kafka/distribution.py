"""The jars of the Apache Kafka server: their versions, their download and their cache.

Maven or Ivy downloads the jars. (Ivy is a part of PySpark.)

* Both tools verify each jar with the repository's checksum, and reject a jar that does not match
  (Maven by ``--strict-checksums``, Ivy by the default ``ivy.checksums=sha1,md5``).
* An incomplete download is never used. The jars are downloaded into a directory with a temporary
  name. When all jars are there, a list of the files with their sizes is written, and the directory
  gets its final name. If the files later differ from this list, they are downloaded again.
* Several processes can use the cache. A process holds a file lock from the check of the cache until
  the directory has its final name.
* Each version of Kafka has its own directories and its own lock. A failed download of one version
  does not affect another version.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.local_kafka.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.java import Java

#: The Apache Kafka that nearly all tests run against.
KAFKA_VERSION = "4.3.1"

#: The newest Kafka whose clusters can't write transactions of version 2 (KIP-890), and the last
#: line before 4.0. For users with such brokers; fetched on request.
KAFKA_3_VERSION = "3.9.2"

#: Versions that few tests run against, fetched on request: the first with all that exactly-once
#: needs, the first whose KRaft Apache declared ready for production, and the newest.
OTHER_VERSIONS = ("3.0.2", "3.3.2", "4.4.0")

_SCALA_VERSION = "2.13"
_LOG4J_VERSION = "2.25.4"
_RESOLVE_TIMEOUT_S = 900
_FILE_LIST = "files.json"

_log = logging.getLogger("spark_kafka_sink.local_kafka")


@dataclass(frozen=True, slots=True)
class Coordinate:
    """An artifact of a Maven repository. If ``alone`` is True, it is downloaded without its
    dependencies. ``kind`` is the file name extension, such as ``jar``.
    """

    group: str
    name: str
    version: str
    alone: bool = False
    kind: str = "jar"
    classifier: str = ""

    @property
    def file(self) -> str:
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.kind}"


def _server(version: str, *more: Coordinate) -> tuple[Coordinate, ...]:
    """The artifacts of Kafka's server and of its command line tools, for one version of Kafka.
    ``more`` are the artifacts of a logger. Without a logger, the log of the server would be empty.
    """
    # The tools are dump-log, console-consumer and ProducerPerformance. They depend on Kafka
    # Connect, and never call it. The download would be twice as large with Connect.
    return (
        Coordinate("org.apache.kafka", f"kafka_{_SCALA_VERSION}", version),
        Coordinate("org.apache.kafka", "kafka-tools", version, alone=True),
        Coordinate("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION, alone=True),
        *more,
    )


def _artifacts(version: str) -> tuple[Coordinate, ...]:
    """The artifacts to download for a version of Kafka."""
    # Kafka 3 calls log4j 1 but does not include it. So log4j 2 is added, with its bridge for calls
    # of log4j 1. Kafka 4 itself depends on log4j 2.
    names = ("log4j-1.2-api", "log4j-api", "log4j-core") if version.startswith("3.") else ()
    log4j = (Coordinate("org.apache.logging.log4j", n, _LOG4J_VERSION, alone=True) for n in names)
    return _server(version, *log4j)


#: The artifacts, by Kafka's version.
RELEASES: Mapping[str, tuple[Coordinate, ...]] = {
    version: _artifacts(version) for version in (KAFKA_VERSION, KAFKA_3_VERSION, *OTHER_VERSIONS)
}


@dataclass(frozen=True, slots=True)
class Distribution:
    """The jars of one version of Kafka, in the directory ``home`` of the cache."""

    version: str
    home: Path
    jars: tuple[Path, ...]

    @property
    def class_path(self) -> str:
        """The Java class path with all jars. Their order is always the same, because the class
        archive of the JVM is valid only for the same class path.
        """
        return os.pathsep.join(str(jar) for jar in self.jars)


def cache_directory() -> Path:
    """The cache directory: ``$XDG_CACHE_HOME/spark_kafka_sink``, by default
    ``~/.cache/spark_kafka_sink``.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "spark_kafka_sink"


def release(version: str) -> tuple[Coordinate, ...]:
    """The artifacts of the version ``version`` of Kafka. Raises LocalKafkaError if this is not one
    of the pinned versions.
    """
    found = RELEASES.get(version)
    if found is None:
        raise LocalKafkaError(
            f"A local Kafka of version {version!r} is not known.",
            hint=f"versions: {', '.join(RELEASES)}",
        )
    return found


@contextmanager
def cache_lock(version: str = KAFKA_VERSION) -> Iterator[Path]:
    """Locks the cache for one version of Kafka while the ``with`` block runs. Yields the directory
    of the cache. Creates the directory if it does not exist.

    Other processes that use this version wait for the lock. If this process is killed, the
    operating system releases the lock.
    """
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"kafka-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory


def resolve(java: Java, directory: Path, version: str = KAFKA_VERSION) -> Distribution:
    """Returns the jars of Kafka in the cache ``directory``. Downloads the jars if they are missing.
    The caller must hold the lock of :func:`cache_lock`.

    Raises LocalKafkaError if the download fails. The error has the end of the output of each tool
    that was tried.
    """
    home = fetch(java, directory, f"kafka-{version}", release(version), version)
    return Distribution(version, home, tuple(sorted((home / "jars").glob("*.jar"))))


def fetch(
    java: Java,
    directory: Path,
    name: str,
    coordinates: tuple[Coordinate, ...],
    version: str = KAFKA_VERSION,
) -> Path:
    """Downloads all artifacts of ``coordinates`` into ``<directory>/<name>/jars``, if they are
    missing. Returns ``<directory>/<name>``.

    Raises the same error as :func:`resolve`. The caller must hold the lock of :func:`cache_lock`
    for ``version``.
    """
    home = directory / name
    if not _is_whole(home, coordinates):
        if home.exists():
            _log.warning("%s is damaged or of another release; fetching it again", home)
            shutil.rmtree(home)
        partial = f"partial-{version}-"
        # We hold the lock, so a directory with this prefix belongs to a process that was killed.
        for leftover in directory.glob(f"{partial}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=partial, dir=directory))
        try:
            _fetch(java, work, coordinates, name)
            (work / "kafka" / _FILE_LIST).write_text(
                json.dumps(_file_list(work / "kafka", coordinates))
            )
            (work / "kafka").rename(home)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return home


def _is_whole(home: Path, coordinates: tuple[Coordinate, ...]) -> bool:
    try:
        expected = json.loads((home / _FILE_LIST).read_text())
        return bool(expected == _file_list(home, coordinates))
    except (OSError, ValueError):
        return False


def _file_list(home: Path, coordinates: tuple[Coordinate, ...]) -> dict[str, object]:
    return {
        "coordinates": [f"{c.group}:{c.name}:{c.version}" for c in coordinates],
        "jars": {jar.name: jar.stat().st_size for jar in sorted((home / "jars").iterdir())},
    }


def _fetch(java: Java, work: Path, coordinates: tuple[Coordinate, ...], what: str) -> None:
    """Downloads the jars into ``<work>/kafka/jars``. Tries Maven and Ivy until one of them
    succeeds. ``what`` describes the jars in errors.
    """
    jars = work / "kafka" / "jars"
    commands = []
    if (maven := shutil.which("mvn")) is not None:
        commands.append(("Maven", _maven_command(maven, work, jars, coordinates)))
    if (ivy := _find_ivy()) is not None:
        commands.append(("PySpark's Ivy", _ivy_command(java, ivy, work, jars, coordinates)))
    if not commands:
        raise LocalKafkaError(
            f"Fetching {what} needs Maven or PySpark, and neither is installed.",
            hint="pip install 'spark-kafka-sink[spark]', or install Maven so that mvn is on PATH",
        )
    failures = []
    for name, command in commands:
        _log.info("fetching %s (some 100 MB) into %s through %s", what, work.parent, name)
        shutil.rmtree(jars, ignore_errors=True)
        jars.mkdir(parents=True)
        problem = _run_resolver(command, work) or _missing(jars, coordinates)
        if problem is None:
            return
        failures.append(f"{name}: {problem}")
    raise LocalKafkaError(
        f"{what} could not be fetched from Maven Central.",
        hint="\n".join(failures),
    )


def _run_resolver(command: list[str], work: Path) -> str | None:
    """Runs ``command``, a command line of Maven or Ivy. Returns None if the command succeeded,
    otherwise the end of the command's output.
    """
    try:
        answer = subprocess.run(
            command,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_RESOLVE_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return str(error)
    except subprocess.TimeoutExpired:
        return f"no end after {_RESOLVE_TIMEOUT_S} s"
    if answer.returncode == 0:
        return None
    tail = [line for line in answer.stdout.splitlines() if line.strip()][-15:]
    return "\n".join([f"exit status {answer.returncode}", *tail])


def _missing(jars: Path, coordinates: tuple[Coordinate, ...]) -> str | None:
    """Returns a text that names the jars that are missing or damaged after a download. Returns None
    if all jars are there.
    """
    absent = [c.file for c in coordinates if not (jars / c.file).exists()]
    broken = [jar.name for jar in jars.glob("*.jar") if not zipfile.is_zipfile(jar)]
    if absent or broken:
        return f"not brought: {absent}, not a jar: {broken}"
    return None


# --- Maven ---------------------------------------------------------------------------------------


def _maven_command(
    maven: str, work: Path, jars: Path, coordinates: tuple[Coordinate, ...]
) -> list[str]:
    (work / "pom.xml").write_text(_pom(coordinates))
    return [
        maven,
        "--batch-mode",
        "--quiet",
        "--strict-checksums",
        "--file",
        str(work / "pom.xml"),
        "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
        f"-DoutputDirectory={jars}",
        "-DincludeScope=runtime",
    ]


def _pom(coordinates: tuple[Coordinate, ...]) -> str:
    no_more = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        "</exclusions>"
    )
    dependencies = "\n".join(
        f"    <dependency><groupId>{c.group}</groupId><artifactId>{c.name}</artifactId>"
        f"<version>{c.version}</version><type>{c.kind}</type>"
        f"{f'<classifier>{c.classifier}</classifier>' if c.classifier else ''}"
        f"{no_more if c.alone else ''}</dependency>"
        for c in coordinates
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>spark_kafka_sink</groupId>
  <artifactId>local_kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


# --- Ivy -----------------------------------------------------------------------------------------


def _find_ivy() -> Path | None:
    """Finds the jar of Ivy in PySpark or in ``SPARK_HOME``. Returns None if there is none."""
    # (Spark itself uses Ivy for spark.jars.packages. The caller runs Ivy by its main class, because
    # the start of a SparkContext would take three times as long.)
    homes = [Path(os.environ["SPARK_HOME"])] if os.environ.get("SPARK_HOME") else []
    spec = importlib.util.find_spec("pyspark")
    if spec is not None:
        homes += [Path(place) for place in spec.submodule_search_locations or ()]
    for home in homes:
        found = sorted((home / "jars").glob("ivy-*.jar"))
        if found:
            return found[-1]
    return None


def _ivy_command(
    java: Java, ivy: Path, work: Path, jars: Path, coordinates: tuple[Coordinate, ...]
) -> list[str]:
    (work / "ivy.xml").write_text(_ivy_module(coordinates))
    return [
        str(java.path),
        # A user directory of its own: nothing half-fetched in ~/.ivy2 can get in, and two Ivys
        # never share a cache.
        f"-Divy.default.ivy.user.dir={work / 'ivy'}",
        "-jar",
        str(ivy),
        "-warn",
        "-m2compatible",
        "-ivy",
        str(work / "ivy.xml"),
        "-confs",
        "default",
        # snappy-java and friends are published as OSGi bundles.
        "-types",
        "jar",
        "bundle",
        "tar.gz",
        "-retrieve",
        f"{jars}/[artifact]-[revision](-[classifier]).[ext]",
    ]


def _ivy_module(coordinates: tuple[Coordinate, ...]) -> str:
    dependencies = "\n".join(
        f'    <dependency org="{c.group}" name="{c.name}" rev="{c.version}"'
        f' conf="default->default" transitive="{str(not c.alone).lower()}">{_ivy_artifact(c)}'
        "</dependency>"
        for c in coordinates
    )
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="spark_kafka_sink" module="local_kafka"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


def _ivy_artifact(c: Coordinate) -> str:
    """The ``<artifact>`` element of an Ivy file, for an artifact with a Maven classifier."""
    if not c.classifier:
        return ""
    return (
        f'<artifact name="{c.name}" type="{c.kind}" ext="{c.kind}" m:classifier="{c.classifier}"/>'
    )
