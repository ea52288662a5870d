"""Prepares the files that a broker needs: the jars of Kafka, and the class archive of the JVM. This
is done once on each machine, for each version of Kafka and each build of the JVM.

A class archive ("class data sharing") has the classes of Kafka in the form that they have in the
memory of a JVM. With the archive, Kafka starts in about half the time. A temporary broker writes
it.
"""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.local_kafka import ports, probe
from spark_kafka_sink.local_kafka.broker_process_group import BrokerProcessGroup
from spark_kafka_sink.local_kafka.distribution import (
    KAFKA_VERSION,
    Distribution,
    cache_lock,
    release,
    resolve,
)
from spark_kafka_sink.local_kafka.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.java import Java, find_java
from spark_kafka_sink.local_kafka.server_properties import (
    node_properties,
    read_properties,
    template_directory,
    write_properties,
)

_SERVER = "kafka.Kafka"
_STORAGE_TOOL = "kafka.tools.StorageTool"
_FORMAT_TIMEOUT_S = 120
_ARCHIVE_TIMEOUT_S = 120
#: The cluster id of the broker that writes the archive: before Kafka 3.9 it must be the base64 of
#: 16 bytes.
ARCHIVE_ID = "class-archive-of-KafkA"

_log = logging.getLogger("spark_kafka_sink.local_kafka")


@dataclass(frozen=True, slots=True)
class Installation:
    """A JVM, the jars of Kafka, and a class archive. With the archive, this JVM starts Kafka
    faster. The archive is None if it could not be created.
    """

    java: Java
    distribution: Distribution
    class_archive: Path | None

    def server_command(self, properties: Path, jvm_options: Sequence[str]) -> list[str]:
        """The command line of a broker. ``properties`` is its configuration file."""
        return self._command(_SERVER, jvm_options, [str(properties)])

    def format_storage(
        self, properties: Path, cluster_id: str, options: Sequence[str] = ()
    ) -> None:
        """Formats the storage of a node with Kafka's storage tool. The tool writes meta.properties
        and the bootstrap metadata into the node's log directories.

        * ``properties``: the configuration file of the node. Its setting ``log.dirs`` has the log
          directories.
        * ``options``: further arguments of ``kafka-storage format``, such as ``("--feature",
          "transaction.version=0")``.

        Raises LocalKafkaError if the tool fails, can't be run, or takes longer than two minutes. If
        the tool fails, the error has its output.
        """
        arguments = ["format", "-t", cluster_id, "-c", str(properties), *options]
        try:
            answer = subprocess.run(
                self._command(_STORAGE_TOOL, QUICK_JVM, arguments),
                capture_output=True,
                text=True,
                timeout=_FORMAT_TIMEOUT_S,
                cwd=properties.parent,
                check=False,
            )
        except OSError as error:
            raise LocalKafkaError(f"Kafka's storage tool did not run: {error}") from None
        except subprocess.TimeoutExpired:
            raise LocalKafkaError(
                f"Kafka's storage tool did not format the log.dirs of {properties} within"
                f" {_FORMAT_TIMEOUT_S} s.",
                hint="is the machine very busy, or the disk full or very slow?",
            ) from None
        if answer.returncode != 0:
            raise LocalKafkaError(
                f"Kafka's storage tool could not format the log.dirs of {properties}.",
                hint=(answer.stderr + answer.stdout).strip()[-2000:],
            )

    def _command(self, main: str, options: Sequence[str], arguments: Sequence[str]) -> list[str]:
        archive = (
            [] if self.class_archive is None else [f"-XX:SharedArchiveFile={self.class_archive}"]
        )
        return [
            str(self.java.path),
            *archive,
            # Its files in /tmp would outlive a killed broker.
            "-XX:-UsePerfData",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={template_directory() / 'log4j2.properties'}",
            *options,
            "-cp",
            self.distribution.class_path,
            main,
            *arguments,
        ]


#: Options for a broker that should be up soon and small: one compiler tier, one collector thread.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

#: Options for a broker in a measurement: the options of Kafka's own start script.
FULL_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


def prepare(version: str = KAFKA_VERSION) -> Installation:
    """Returns the files that a broker needs. Downloads and creates the files that are missing.
    Several processes may call this function at the same time.

    The first call for a version takes half a minute, each later call takes a tenth of a second.
    Raises LocalKafkaError if there is no suitable JVM, or if the jars can't be downloaded. If the
    JVM's class archive can't be created, logs a warning, and brokers start more slowly.
    """
    release(version)  # an unknown one leaves nothing in the cache
    java = find_java()
    with cache_lock(version) as directory:
        distribution = resolve(java, directory, version)
        archive = distribution.home / f"classes-{java.fingerprint}.jsa"
        bare = Installation(java, distribution, None)
        if not archive.exists():
            _write_archive(bare, archive)
    return Installation(java, distribution, archive if archive.exists() else None)


def _write_archive(installation: Installation, archive: Path) -> None:
    """Creates the class archive ``archive`` with a temporary broker. If no archive is created, only
    logs a warning, because brokers also start without an archive.
    """
    _log.info("writing the class archive of Kafka %s", installation.distribution.version)
    processes = BrokerProcessGroup()
    reserved = [ports.reserve() for _ in range(3)]
    partial = archive.with_suffix(".partial")
    try:
        properties = read_properties(template_directory() / "one-node.properties")
        properties |= node_properties(
            1,
            processes.directory / "data",
            {"PLAINTEXT": ("PLAINTEXT", reserved[0].port)},
            internal_port=reserved[1].port,
            voters={1: reserved[2].port},
        )
        path = processes.directory / "server.properties"
        write_properties(path, properties)
        installation.format_storage(path, ARCHIVE_ID)
        options = [f"-XX:ArchiveClassesAtExit={partial}", "-XX:+UseSerialGC", "-Xmx512m"]
        with (processes.directory / "server.log").open("wb") as log:
            process = processes.start(
                installation.server_command(path, options), log, processes.directory
            )
        deadline = time.monotonic() + _ARCHIVE_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            state = probe.cluster_state(ports.HOST, reserved[0].port)
            if state is not None and state.brokers:
                break
            time.sleep(0.05)
        process.terminate()  # the JVM writes the archive when it ends
        process.wait(max(1.0, deadline - time.monotonic()))
        partial.rename(archive)
    except (OSError, LocalKafkaError, subprocess.TimeoutExpired) as error:
        _log.warning("the class archive can't be written, so brokers start more slowly: %s", error)
    finally:
        processes.close()
        partial.unlink(missing_ok=True)
        for port in reserved:
            port.release()
