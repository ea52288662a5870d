"""Nothing that an option names or calls takes the operator's lists away, or leads around them."""

from __future__ import annotations

import os
import sys

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security import allow_lists, import_paths
from spark_kafka_sink.base.security.allow_lists import NotAllowedError
from spark_kafka_sink.datasource.source import KprodDataSource
from tests.programs import run_python

#: An ordinary module, as an operator allows one, with what ordinary modules import and make.
MODULE = """
import abc
import builtins
import collections.abc
import functools
import logging
import os
import os.path as path
from os import abort, environ
from kprod_listed import private

log = logging.getLogger(__name__)
settings = {}
chdir = os.chdir
forget = functools.partial(environ.clear)
_hidden = print

class Registry(dict): pass
registry = Registry()

class Part(abc.ABC):
    where = environ
    run = staticmethod(os.system)
    def partition(self, topic, keys, values, n, available): return [0] * len(values)

class Handler(logging.Handler): pass

class Lazy:
    def __getattr__(self, name): return __import__(name)
lazy = Lazy()

def make():
    def inner(): return "made"
    return inner
made = make()
cached = functools.cache(make)
cached_abort = functools.cache(abort)
"""

#: What each of them would give: the environment, all modules, code of others.
LEAD_ELSEWHERE = [
    "logging.os.environ._data.clear",
    "logging.os.environ.clear",
    "logging.sys.modules.clear",
    "log.handlers.clear",
    "log.setLevel",
    "log.manager.loggerDict.clear",
    "Part.partition.__globals__.clear",
    "Part.partition.__code__.replace",
    "Part.__init_subclass__",
    "Part.__subclasses__",
    "Part.mro",
    "Part.register",
    "Part.where.clear",
    "Part.where.pop",
    "Part.run",
    "Handler.acquire",
    "registry.clear",
    "settings.clear",
    "environ",
    "environ.clear",
    "abort",
    "chdir",
    "forget",
    "cached.cache_clear",
    "cached_abort",
    "path.expandvars",
    "os",
    "os.path.join",
    "builtins.exec",
    "collections.abc.Sized.register",
    "functools.reduce",
    "lazy.os",
    "lazy.os.environ.clear",
    "lazy.__class__",
    "made.__globals__",
    "_hidden",
    "private._data",
    "private.use",
    "__builtins__",
    "__loader__.set_data",
    "__spec__.loader",
    "__dict__.clear",
]


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """``kprod_listed`` is a package on the list of imports; every other list is empty."""
    package = tmp_path / "kprod_listed"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "private.py").write_text("_data = {}\ndef use(): return 'used'\n")
    (package / "_inner.py").write_text("class Part: pass\ndef use(): return 'inner'\n")
    (package / "kafka.py").write_text(MODULE + "from kprod_listed._inner import Part as Own\n")
    monkeypatch.syspath_prepend(tmp_path)
    lists = dict.fromkeys(allow_lists.EVERY, "") | {allow_lists.IMPORTS: "kprod_listed"}
    monkeypatch.setattr(allow_lists, "_LISTS", allow_lists.read_lists(lists))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("kprod_listed")]:
        del sys.modules[name]


@pytest.mark.parametrize("path", LEAD_ELSEWHERE)
def test_a_path_leads_to_nothing_the_module_only_has(path, listed):
    """Where it is defined counts, at every step; it is refused before it is called."""
    before = dict(os.environ)
    with pytest.raises(NotAllowedError, match="listener: kprod_listed"):
        import_paths.make(f"kprod_listed.kafka:{path}", "listener")
    assert dict(os.environ) == before


@pytest.mark.parametrize("path", ["kprod_listed.kafka.os:abort", "kprod_listed._inner:use"])
def test_neither_does_its_first_half(path, listed):
    """A module that is there by another's import, and one with a private name."""
    with pytest.raises(ConfigError):
        import_paths.find(path, "listener")


@pytest.mark.parametrize(
    "path",
    [
        "kafka:Part",
        "kafka:Part.partition",
        "kafka:made",
        "kafka:Own",
        "kafka:registry",
        "kafka:cached",
    ],
)
def test_what_a_listed_module_defines_is_found(path, listed):
    """Also what it has from another listed module, whose own name may be private."""
    assert import_paths.find(f"kprod_listed.{path}", "listener") is not None


def test_a_private_name_the_operator_wrote_is_found(listed, monkeypatch):
    lists = {allow_lists.IMPORTS: "kprod_listed._inner"}
    monkeypatch.setattr(allow_lists, "_LISTS", allow_lists.read_lists(lists))
    assert callable(import_paths.find("kprod_listed._inner:use", "listener"))


def test_the_environment_is_read_once(monkeypatch):
    """When the package is imported: what is set, changed or deleted later changes no list."""
    found = run_python(
        "-c",
        "import os\n"
        f"os.environ['{allow_lists.PATHS}'] = '/first'\n"
        f"os.environ['{allow_lists.URLS}'] = ''\n"
        "import spark_kafka_sink\n"
        "os.environ.clear()\n"
        f"os.environ['{allow_lists.PATHS}'] = '/'\n"
        "from spark_kafka_sink.base.security import allow_lists\n"
        "for check in (allow_lists.check_file, allow_lists.check_url):\n"
        "    try:\n"
        "        check('/etc/hostname', 'it')\n"
        "        print('taken')\n"
        "    except allow_lists.NotAllowedError:\n"
        "        print('refused')\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    allow_lists.check_file('/first/x', 'it')\n"
        "    os._exit(allow_lists.EVERY[0] not in allow_lists._LISTS)\n"
        "print(os.waitpid(pid, 0)[1])\n"
    )  # fmt: skip
    assert found.stdout.split() == ["refused", "refused", "0"]


def test_the_lists_can_not_be_written():
    lists = allow_lists.read_lists({allow_lists.IMPORTS: "a"})
    with pytest.raises(TypeError):
        lists[allow_lists.IMPORTS] = None
    with pytest.raises(AttributeError):
        lists[allow_lists.IMPORTS].items = ("os",)


def test_one_write_takes_no_list_from_the_next(listed, caplog):
    """The second of three writes names what would empty them; Spark's planner is one process."""
    (listed / "secret").write_text("canary9")
    schema = StructType([StructField("value", StringType())])
    base = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic": "t",
        "kafka.max.block.ms": "1000",
        "kafka.security.protocol": "SASL_PLAINTEXT",
    }
    steal = base | {
        "preflight": "required",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "x",
        "kafka.sasl.password": f"${{file:{listed}/secret}}",
    }
    empty = base | {
        "preflight": "warn",  # so planning goes on; the tasks are refused it, too
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.login.callback.handler.class": (
            "kprod_listed.kafka:logging.os.environ._data.clear"
        ),
    }
    before = dict(os.environ)
    with pytest.raises(NotAllowedError, match="KPROD_ALLOWED_PATHS"):
        KprodDataSource(CaseInsensitiveDict(steal)).writer(schema, False)
    KprodDataSource(CaseInsensitiveDict(empty)).writer(schema, False)
    assert "KPROD_ALLOWED_IMPORTS of this process" in caplog.text
    with pytest.raises(NotAllowedError, match="KPROD_ALLOWED_PATHS"):
        KprodDataSource(CaseInsensitiveDict(steal)).writer(schema, False)
    assert dict(os.environ) == before
