"""Finds the JVM that runs the brokers.

This module searches for ``java``, and checks that its version is new enough for Kafka's server. It
runs only ``java -version``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.local_kafka.errors import LocalKafkaError

#: Kafka 4 brokers are compiled for Java 17 (KIP-1013).
MINIMUM_JAVA = 17

_INSTALL_HINT = (
    f"install a JDK {MINIMUM_JAVA} or newer (Debian, Ubuntu: apt-get install "
    f"openjdk-{MINIMUM_JAVA}-jre-headless) and let JAVA_HOME or PATH lead to it"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A ``java`` program, its major version, and a name that is different for each build of the
    JVM.
    """

    path: Path
    major: int
    #: Class archives fit one build of the JVM only, so their file names carry this.
    fingerprint: str


def find_java() -> Java:
    """Finds the JVM of ``JAVA_HOME``. If this variable is not set, finds ``java`` in ``PATH``.
    Raises LocalKafkaError if no JVM is found, or if the JVM is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not path.exists():
            raise LocalKafkaError(
                f"JAVA_HOME is {home}, but there is no bin/java in it.", hint=_INSTALL_HINT
            )
    else:
        found = shutil.which("java")
        if found is None:
            raise LocalKafkaError(
                "A local Kafka needs Java, and there is no java on PATH and JAVA_HOME is not set.",
                hint=_INSTALL_HINT,
            )
        path = Path(found)
    try:
        answer = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalKafkaError(f"{path} -version did not run: {error}", hint=_INSTALL_HINT) from None
    major = parse_major_version(answer.stderr)
    if answer.returncode != 0 or major is None:
        raise LocalKafkaError(
            f"{path} -version gave no version (exit status {answer.returncode}).",
            hint=_INSTALL_HINT,
        )
    if major < MINIMUM_JAVA:
        raise LocalKafkaError(
            f"Kafka's server needs Java {MINIMUM_JAVA} or newer, but {path} is Java {major}.",
            hint=_INSTALL_HINT,
        )
    build = f"{path.resolve()}\n{answer.stderr}"
    return Java(path, major, hashlib.sha256(build.encode()).hexdigest()[:16])


def parse_major_version(text: str) -> int | None:
    """Returns the major version in the output of ``java -version``: 17 for "17.0.2", and 8 for
    "1.8.0_402". Returns None if there is no version.
    """
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    first, second = match.groups()
    return int(second) if first == "1" and second is not None else int(first)
