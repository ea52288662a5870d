"""Runs a real schema registry on this machine: Apicurio Registry, which has Confluent's REST API.
The registry stores its schemas in memory.

:class:`SchemaRegistry` starts and stops the registry. The files of the registry are downloaded
once, like the jars of Kafka.
"""

from __future__ import annotations

import shutil
import tarfile
import time
from pathlib import Path
from typing import Final, Self

from spark_kafka_sink.local_kafka import ports, probe
from spark_kafka_sink.local_kafka.broker_process_group import BrokerProcessGroup
from spark_kafka_sink.local_kafka.distribution import Coordinate, cache_lock, fetch
from spark_kafka_sink.local_kafka.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.installation import QUICK_JVM
from spark_kafka_sink.local_kafka.java import Java, find_java

#: The newest version all of whose files are on Maven Central (3.1.4 and 3.3.3 are not).
REGISTRY_VERSION: Final = "2.6.13.Final"
_APP: Final = Coordinate("io.apicurio", "apicurio-registry-app", REGISTRY_VERSION,
                         alone=True, kind="tar.gz", classifier="all")  # fmt: skip
_RUNNER: Final = f"{_APP.name}-{REGISTRY_VERSION}-runner.jar"
_API: Final = "/apis/ccompat/v7"
_START_TIMEOUT_S: Final = 120.0


def prepare_registry(java: Java) -> Path:
    """Returns the directory with the files of the registry. The first call on a machine downloads
    the files (140 MB). Raises LocalKafkaError if the download fails.
    """
    name = f"apicurio-{REGISTRY_VERSION}"
    with cache_lock(name) as directory:
        home = fetch(java, directory, name, (_APP,), name)
        unpacked, partial = home / "unpacked", home / "partial"
        if not unpacked.exists():
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            with tarfile.open(home / "jars" / _APP.file) as files:
                files.extractall(partial, filter="data")
            partial.rename(unpacked)
        return unpacked


class SchemaRegistry:
    """A schema registry that stores its schemas in memory::

        with SchemaRegistry() as registry:
            registry.url

    If ``port`` is None, a free port is used. The registry runs until :meth:`stop` is called, or
    until this process ends.
    """

    def __init__(self, *, port: int | None = None, heap: str = "512m") -> None:
        self._heap = heap
        self._held = ports.reserve(port)
        self._processes: BrokerProcessGroup | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL of the registry, for ``schema.registry.url``."""
        return f"http://{ports.HOST}:{self._held.port}{_API}"

    def start(self, *, timeout: float = _START_TIMEOUT_S) -> None:
        """Starts the registry, and waits until it responds. The first call on a machine downloads
        the files of the registry (140 MB).

        Raises LocalKafkaError if the registry ends, or does not respond within ``timeout`` seconds.
        The time begins after the download. The error has the end of the registry's log.
        """
        try:
            java = find_java()
            home = prepare_registry(java)
            self._processes = BrokerProcessGroup()
            log = self._processes.directory / "registry.log"
            command = [
                *(str(java.path), *QUICK_JVM, "-XX:-UsePerfData", f"-Xmx{self._heap}"),
                *(f"-Dquarkus.http.host={ports.HOST}", f"-Dquarkus.http.port={self._held.port}"),
                *("-jar", str(home / _RUNNER)),
            ]
            with log.open("wb") as output:
                process = self._processes.start(command, output, self._processes.directory)
            deadline = time.monotonic() + timeout
            while not probe.answers_http(ports.HOST, self._held.port, f"{_API}/subjects"):
                if process.poll() is not None or time.monotonic() > deadline:
                    tail = log.read_text(errors="replace")[-2000:]
                    raise LocalKafkaError("The schema registry did not start.", hint=tail)
                time.sleep(0.1)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kills the registry process, and releases its port. A second call does nothing."""
        if self._processes is not None:
            self._processes.close()
        self._held.release()
