"""Whose driver a Python process works for: the JVM above it, and the write's own options."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from spark_kafka_sink.datasource.process import driver_identity
from spark_kafka_sink.datasource.process.driver_identity import driver_token
from spark_kafka_sink.transactions.transactional_ids import is_part

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")

OPTIONS = {"topic": "t", "transactionalIdPrefix": "p", "kafka.bootstrap.servers": "h:9092"}

#: The leaf: prints the token of each options that it is given.
_LEAF = """
import json, sys
sys.path[:0] = [sys.argv[2]]
from spark_kafka_sink.datasource.process.driver_identity import driver_token
print(json.dumps([driver_token(options) for options in json.loads(sys.argv[1])]))
"""
#: A process that has `depth` more between itself and the leaf, and asks as often as `times`.
_ABOVE = """
import subprocess, sys
above, leaf, python, depth, times, *rest = sys.argv[1:]
if int(depth):
    command = [python, "-c", above, above, leaf, python, str(int(depth) - 1), "1", *rest]
else:
    command = [python, "-c", leaf, *rest]
for _ in range(int(times)):
    subprocess.run(command, check=True)
"""


def executable(directory: Path, name: str) -> str:
    """This Python under another name. Linux takes a process's name from its file's, and a script
    has its interpreter's: so a copy, with this one's libraries.
    """
    path = directory / name
    shutil.copy(Path(sys.executable).resolve(), path)
    return str(path)


def tokens(
    top: str,
    *options: dict[str, str],
    depth: int = 1,
    times: int = 1,
    python: str = sys.executable,
) -> list[list[str]]:
    """What processes below ``top`` find, ``times`` of them."""
    home = str(Path(__file__).resolve().parents[2])
    given = [_ABOVE, _LEAF, python, str(depth), str(times), json.dumps(options), home]
    environment = os.environ | {
        "PYTHONHOME": sys.base_prefix,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    told = subprocess.run(
        [top, "-c", _ABOVE, *given],
        check=True,
        stdout=subprocess.PIPE,
        timeout=150,
        env=environment,
    )
    return [json.loads(line) for line in told.stdout.splitlines()]


@pytest.fixture(scope="module")
def java(tmp_path_factory) -> str:
    return executable(tmp_path_factory.mktemp("jvm"), "java")


def test_processes_of_one_jvm_share_a_token_that_others_lack(java):
    (first,), (second,) = tokens(java, OPTIONS, times=2)
    assert first == second
    assert len(first) == 8
    assert int(first, 16) >= 0
    assert is_part(first)
    ((other,),) = tokens(java, OPTIONS)
    assert other not in ("", first)


def test_wrappers_are_allowed_between_them_up_to_a_limit(java):
    ((near,),) = tokens(java, OPTIONS, depth=3)
    assert near != ""
    ((far,),) = tokens(java, OPTIONS, depth=17)
    assert far == "" or own_ancestor_is_a_jvm()


@pytest.mark.parametrize("name", ["javac", "my java", "java2", "python) S 1 (x"])
def test_only_a_jvm_counts(tmp_path, name):
    ((found,),) = tokens(executable(tmp_path, name), OPTIONS)
    assert found == "" or own_ancestor_is_a_jvm()


def test_a_name_with_spaces_and_parentheses_hides_no_jvm(tmp_path, java):
    """`java` is above, the odd one between."""
    ((found,),) = tokens(java, OPTIONS, python=executable(tmp_path, "a) (b"))
    assert len(found) == 8


def test_writes_of_a_driver_differ_by_their_own_options_only(java):
    same = [
        OPTIONS,
        {key.upper(): value for key, value in OPTIONS.items()},
        OPTIONS | {"kafka.sasl.jaas.config": "a-secret"},
        OPTIONS | {"KAFKA.ssl.key.password": "another"},
        OPTIONS | {"configFile": "/etc/kprod/secrets.toml"},
        dict(reversed(OPTIONS.items())),
    ]
    other = [
        OPTIONS | {"topic": "u"},
        OPTIONS | {"transactionalIdPrefix": "q"},
        OPTIONS | {"reportPath": "/tmp/report"},
        {},
    ]
    (found,) = tokens(java, *same, *other)
    assert len(set(found[: len(same)])) == 1
    assert len(set(found)) == 1 + len(other)


def test_without_a_jvm_there_is_no_token():
    if own_ancestor_is_a_jvm():
        pytest.skip("the tests themselves run below a JVM")
    assert driver_token(OPTIONS) == ""


def own_ancestor_is_a_jvm() -> bool:
    return any(one.name() == "java" for one in psutil.Process().parents())


def test_ancestors_are_looked_at_a_few_times_only(monkeypatch):
    """A process may be its own ancestor in a namespace that is wrongly mounted."""
    monkeypatch.setattr(driver_identity, "_MOST_ANCESTORS", 0)
    assert driver_token(OPTIONS) == ""
