"""The files of conf/kubernetes: the operator's schema takes them, and they fit each other.

The schema is out of the CRD of kubeflow's operator (sparkapplication.schema.json says what was left
out). The job's options are looked at where the page shows it (test_code_of_the_pages.py). No image
was built of them, and no cluster has seen them.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from spark_kafka_sink.base.version import __version__
from tests.datasource.sums_of_a_write import Load, memory

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "conf" / "kubernetes"
PAGE = (ROOT / "docs" / "clusters.md").read_text("utf-8")
DOCKERFILE = (FILES / "Dockerfile").read_text("utf-8")
JOB = (FILES / "job.py").read_text("utf-8")
APPLICATION = yaml.safe_load((FILES / "sparkapplication.yaml").read_text("utf-8"))
SCHEMA = jsonschema.Draft202012Validator(
    json.loads(Path(__file__).with_name("sparkapplication.schema.json").read_text("utf-8"))
)


def test_the_operators_schema_takes_the_application():
    assert [error.message for error in SCHEMA.iter_errors(APPLICATION)] == []


@pytest.mark.parametrize("part", ["spec", "driver", "executor", "restartPolicy"])
def test_the_schema_finds_a_field_that_is_none(part):
    wrong = copy.deepcopy(APPLICATION)
    (wrong["spec"] if part == "spec" else wrong["spec"][part])["memoryOverhed"] = "1g"
    assert len(list(SCHEMA.iter_errors(wrong))) == 1


def test_the_image_has_what_the_application_starts():
    spec = APPLICATION["spec"]
    assert f"FROM apache/spark:{spec['sparkVersion']}-" in DOCKERFILE
    assert f"COPY spark_kafka_sink-{__version__}-" in DOCKERFILE
    assert spec["image"].endswith(f":{__version__}")
    (target,) = re.findall(r"^COPY job.py (\S+)$", DOCKERFILE, re.MULTILINE)
    assert spec["mainApplicationFile"] == f"local://{target}"
    assert len(spec["arguments"]) == 3  # path, topic, day


def test_driver_and_executors_mount_the_secret_where_it_is_read():
    for part in ("driver", "executor"):
        (secret,) = APPLICATION["spec"][part]["secrets"]
        found = re.findall(rf"{secret['path']}/([a-z.]+)", JOB)
        assert sorted(found) == ["ca.pem", "password"]


def test_the_path_that_the_job_reads_is_on_a_volume():
    """Of driver and executors: Spark plans on one and reads on the other."""
    spec = APPLICATION["spec"]
    names = {one["name"] for one in spec["volumes"]}
    for part in ("driver", "executor"):
        (mount,) = spec[part]["volumeMounts"]
        assert mount["name"] in names
        assert spec["arguments"][0].startswith(f"{mount['mountPath']}/")


def test_the_executors_have_room_for_python():
    executor = APPLICATION["spec"]["executor"]
    load = Load(
        tasks=executor["instances"] * executor["cores"],
        leaders=3,
        cores=executor["cores"],
        executor_memory=memory(executor["memory"]),
    )
    assert load.memory_overhead <= memory(executor["memoryOverhead"])


@pytest.mark.parametrize("name", ["Dockerfile", "job.py"])
def test_the_page_shows_the_file(name):
    assert (FILES / name).read_text("utf-8") in PAGE
