"""What a release says of itself, and what it is made of: addresses, extras, locks, licences."""

import json
import re
import runpy
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from spark_kafka_sink.base import documentation
from spark_kafka_sink.base.topic_name import COMMIT_LOG_TOPIC
from spark_kafka_sink.transactions.transactional_ids import SEPARATOR

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LOCKS = ("demo", "dev", "runtime", "site", "supply")


def locked(name):
    """Requirements of a lock file, each with its hashes."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    entries = re.findall(
        r"^([a-z0-9][^\n\\]*?) \\\n((?:    --hash=\S+(?: \\)?\n)+)", text, re.MULTILINE
    )
    return {
        Requirement(line): re.findall(r"--hash=sha256:([0-9a-f]{64})", hashes)
        for line, hashes in entries
    }


def wanted(name):
    """What pyproject.toml asks for, where this lock must have it."""
    groups = PROJECT["dependency-groups"]
    if name == "site":
        return [Requirement(line) for line in groups["site"]]
    if name == "supply":
        own = [line for line in groups["supply"] if isinstance(line, str)]
        return [Requirement(line) for line in groups["build"] + own]
    lines = list(PROJECT["project"]["dependencies"])
    if name == "runtime":
        lines += EXTRAS["aws"] + EXTRAS["cli"] + EXTRAS["metrics"] + EXTRAS["tls"]
    elif name == "demo":
        lines += EXTRAS["spark"] + EXTRAS["demo"][:-1]
    else:
        chosen = ("test", "lint", "bench", "build")
        lines += EXTRAS["spark"] + [one for group in chosen for one in groups[group]]
    return [Requirement(line) for line in lines]


@pytest.fixture(scope="module")
def metadata():
    return runpy.run_path(str(ROOT / "tools" / "package_metadata.py"))


def test_without_a_site_the_metadata_names_no_address(metadata):
    """documentation.py has the one setting; an address that leads nowhere is worse than none."""
    assert documentation.SITE == ""
    assert "urls" not in PROJECT["project"]
    shown = metadata["shown"](README, "", "1.2.3")
    assert re.findall(r"\]\([^)]*\)", shown) == []
    assert "](docs/" in README
    assert "killed driver" in shown.lower()


def test_with_a_site_every_link_of_the_metadata_leads_to_it(metadata):
    site = "https://kprod.example/en"
    shown = metadata["shown"](README, site, "1.2.3")
    links = re.findall(r"\]\(([^)]+)\)", shown)
    assert len(links) >= 10
    assert [link for link in links if not link.startswith(f"{site}/1.2.3/")] == []
    assert f"{site}/1.2.3/exactly-once/" in links
    assert f"{site}/1.2.3/contributing/" in links
    assert metadata["addresses"](site)["Errors"] == f"{site}/latest/errors/"


def test_all_brings_every_extra_that_installs_anywhere():
    (line,) = EXTRAS["all"]
    assert Requirement(line).extras == set(EXTRAS) - {
        "all",
        "demo",
        "demo-avro",
        "gssapi",
        "local-kafka",
        "spark",
    }


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_a_hash_for_everything_and_names_no_host(name):
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    pins = locked(name)
    assert len(pins) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE)) > 12
    assert all(hashes and str(pin.specifier).startswith("==") for pin, hashes in pins.items())
    assert "://" not in text
    assert "--index-url" not in text


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_as_new_as_what_it_locks(name):
    pins = {}
    for pin in locked(name):
        (version,) = (one.version for one in pin.specifier)
        pins.setdefault(canonicalize_name(pin.name), []).append(version)
    for one in wanted(name):
        versions = pins[canonicalize_name(one.name)]
        assert all(one.specifier.contains(version) for version in versions), f"make lock: {one}"


def test_the_licence_of_every_released_dependency_is_listed():
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    rows = re.findall(r"^- (.+): (.+)$", page, re.MULTILINE)
    listed = {}
    for licence, packages in rows:
        assert licence not in ("", "UNKNOWN"), packages
        for name, version in re.findall(r"(\S+) (\S+?)(?:, |$)", packages):
            listed[canonicalize_name(name)] = version
    here = default_environment() | {"python_full_version": "3.11.0", "sys_platform": "linux"}
    brought = {
        canonicalize_name(pin.name): next(iter(pin.specifier)).version
        for pin in locked("runtime")
        if pin.marker is None or pin.marker.evaluate(here)
    }
    assert set(listed) <= set(brought)
    assert set(brought) - set(listed) <= {"colorama"}, "make licences"
    assert {n: v for n, v in brought.items() if n in listed} == listed


def test_the_policies_for_msk_name_what_each_guarantee_needs():
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    plain, exactly_once = (
        json.loads(one) for one in re.findall(r"```json\n(.+?)```", text, re.DOTALL)
    )
    actions = [
        {
            action.removeprefix("kafka-cluster:")
            for statement in statements
            for action in statement["Action"]
        }
        for statements in (plain["Statement"], exactly_once)
    ]
    assert actions[0] == {"Connect", "DescribeTopic", "WriteData", "WriteDataIdempotently"}
    ids = {"AlterTransactionalId", "DescribeTransactionalId"}
    assert actions[1] == ids | {"CreateTopic", "DescribeTopic", "ReadData", "WriteData"}
    resources = [statement["Resource"] for statement in exactly_once]
    assert sum(one.endswith(f"/{COMMIT_LOG_TOPIC}") for one in resources) == 1
    assert sum(one.endswith(f"/PREFIX{SEPARATOR}*") for one in resources) == 1


def test_what_a_wheel_brings_beside_its_code_is_there():
    for source in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]:
        assert any((ROOT / source).iterdir()), source
