"""A stand-in for Maven Central and for a JDK, so that no test here waits for either."""

from __future__ import annotations

import os
import stat
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from spark_kafka_sink.local_kafka import KAFKA_VERSION
from spark_kafka_sink.local_kafka.distribution import RELEASES


def script(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


GOOD_MAVEN = """\
    #!/bin/sh
    echo run >> "$RUNS"
    sleep "${DELAY:-0}"
    for argument in "$@"; do
        case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; esac
    done
    for jar in $JARS; do
        case "$jar" in *.tar.gz) cp "$TAR" "$out/$jar";; *) cp "$JAR" "$out/$jar";; esac
    done
    """


@pytest.fixture
def maven(monkeypatch, tmp_path):
    """A stand-in for Maven Central: an ``mvn`` on PATH that copies a jar under the wanted names."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    with zipfile.ZipFile(tmp_path / "some.jar", "w") as jar:
        jar.writestr("a", "b")
    script(bin_ / "mvn", GOOD_MAVEN)
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("JAR", str(tmp_path / "some.jar"))
    monkeypatch.setenv("JARS", " ".join(c.file for c in RELEASES[KAFKA_VERSION]))
    return bin_ / "mvn"


@pytest.fixture(scope="session")
def stand_in_java(tmp_path_factory):
    """``JAVA_HOME`` of the stand-in for a JDK, ``java_stand_in.py``."""
    home = tmp_path_factory.mktemp("jdk")
    (home / "bin").mkdir()
    program = Path(__file__).with_name("java_stand_in.py")
    # Without site, so that it starts in 20 ms.
    script(home / "bin" / "java", f'#!/bin/sh\nexec {sys.executable} -S -E {program} "$@"\n')
    return home


@pytest.fixture
def java(monkeypatch, stand_in_java):
    """A machine with that Java."""
    monkeypatch.setenv("JAVA_HOME", str(stand_in_java))
