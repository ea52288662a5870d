"""A Python without PySpark, or with one that is too old: one line that says so."""

from __future__ import annotations

import pytest

from tests.programs import run_python

OLD = """
import sys, types
for name in ("pyspark", "pyspark.sql", "pyspark.sql.datasource"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["pyspark"].sql = sys.modules["pyspark.sql"]
sys.modules["pyspark.sql"].datasource = sys.modules["pyspark.sql.datasource"]
sys.modules["pyspark.sql.datasource"].DataSource = object
from importlib import metadata
def version(name):
    raise metadata.PackageNotFoundError
metadata.version = version
sys.modules["pyspark"].__version__ = "3.5.2"
"""
NO_DATASOURCE = """
import sys, types
sys.modules["pyspark"] = types.ModuleType("pyspark")
sys.modules["pyspark"].__path__ = []
sys.modules["pyspark.sql"] = types.ModuleType("pyspark.sql")
from importlib import metadata
metadata.version = lambda name: "3.4.1"
"""
NONE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
sys.meta_path.insert(0, Missing())
"""


@pytest.mark.parametrize(
    ("python", "says"),
    [
        (NONE, "there is no pyspark for"),
        (OLD, "this is pyspark 3.5.2"),
        (NO_DATASOURCE, "this is pyspark 3.4.1"),
    ],
    ids=["no pyspark", "no Arrow writers", "no data sources"],
)
def test_the_error_is_one_line_that_names_what_is_needed(python, says):
    code = f"{python}\ntry:\n    from spark_kafka_sink import register\nexcept ImportError as e:\n"
    code += "    print(repr(e.__cause__), e)"
    done = run_python("-c", code)
    (line,) = done.stdout.splitlines()
    assert done.stderr == ""
    assert line.startswith("None kprod needs P"), line
    assert says in line
    assert "4.0" in line


def test_a_producer_needs_no_spark():
    code = f"{NONE}\nfrom spark_kafka_sink import KafkaProducer"
    run_python("-c", code)
