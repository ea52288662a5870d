"""Small Java programs (``tests/java``) beside Kafka's own jars: what only Java can tell."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from spark_kafka_sink.local_kafka.installation import prepare

_SOURCES = Path(__file__).parent / "java"


def run_java(
    name: str,
    arguments: Sequence[str],
    stdin: str = "",
    timeout: float = 120,
    class_path: str | None = None,
) -> str:
    """What ``tests/java/<name>.java`` prints; the JDK compiles it as it starts."""
    source = str(_SOURCES / f"{name}.java")
    return java(source, *arguments, stdin=stdin, timeout=timeout, class_path=class_path)


def java(
    *arguments: str, stdin: str = "", timeout: float = 120, class_path: str | None = None
) -> str:
    """What Java prints: a source, or a class of Kafka's jars (or of ``class_path``), and its
    arguments.
    """
    installation = prepare()
    answer = subprocess.run(
        [
            str(installation.java.path),
            "-Xmx1g",
            "-XX:-UsePerfData",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Dfile.encoding=UTF-8",
            "-Dsun.stdout.encoding=UTF-8",
            "-cp",
            class_path or installation.distribution.class_path,
            *arguments,
        ],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer.stdout
