"""What builds and publishes the package is fixed: actions by commit, environments by hash.

A tag or a branch of an action may point elsewhere tomorrow, and a job that may publish runs it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8").replace("\\\n", " ")
WORKFLOWS = {
    path.name: path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")
}
RELEASE = WORKFLOWS["release.yml"]
#: What a job may use that has a token of the workflow's identity.
PUBLISHING = {
    "actions/download-artifact",
    "actions/attest-build-provenance",
    "pypa/gh-action-pypi-publish",
}
CHECKS_DIGESTS = 'test "$(sha256sum ./* | sort)" = "$(base64 -d <<< "$DIGESTS" | sort)"'


def unpinned(text: str) -> list[str]:
    """The actions that are not named by a full commit with its tag behind it."""
    used = re.findall(r"^\s*(?:- )?uses: *(.*)$", text, re.MULTILINE)
    return [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+(\.\d+)*", one)]


def has_identity(permissions: Any) -> bool:
    given = permissions.get("id-token") if isinstance(permissions, dict) else permissions
    return given in {"write", "write-all"}


def builds_with_identity(text: str) -> list[str]:
    """What jobs that may ask for an identity do beside attesting and publishing."""
    workflow = yaml.safe_load(text)
    found = []
    for name, job in workflow["jobs"].items():
        if not has_identity(job.get("permissions", workflow.get("permissions"))):
            continue
        checked = False
        for step in job["steps"]:
            action = step.get("uses", "").partition("@")[0]
            checked |= step.get("run") == CHECKS_DIGESTS
            if step.get("run") != CHECKS_DIGESTS and action not in PUBLISHING:
                found.append(f"{name}: {action or step['run']}")
            if action in PUBLISHING - {"actions/download-artifact"} and not checked:
                found.append(f"{name}: {action} before the digests are checked")
    return found


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_action_is_pinned_by_its_commit(name):
    assert "uses:" in WORKFLOWS[name]
    assert unpinned(WORKFLOWS[name]) == []


@pytest.mark.parametrize(
    "name", ["v7.0.1", "release/v1", "3d3c42e", "3d3c42e5aac5ba805825da76410c181273ba90b1"]
)
def test_an_action_without_a_full_commit_and_tag_is_found(name):
    assert unpinned(f"    steps:\n      - uses: actions/checkout@{name}\n") != []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_job_with_an_identity_only_attests_and_publishes(name):
    assert builds_with_identity(WORKFLOWS[name]) == []


def test_the_job_that_publishes_is_the_only_one_with_an_identity():
    jobs = yaml.safe_load(RELEASE)["jobs"]
    assert [name for name, job in jobs.items() if has_identity(job.get("permissions"))] == [
        "publish"
    ]
    assert jobs["publish"]["needs"] == "build"
    assert all(not has_identity(yaml.safe_load(text)["permissions"]) for text in WORKFLOWS.values())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    timeout-minutes: 45\n", "    permissions: {id-token: write}\n"),
        ('test "$(sha256sum', 'make dist; test "$(sha256sum'),
        ("actions/download-artifact@", "actions/checkout@"),
        ("permissions:\n  contents: read\n", "permissions: write-all\n"),
    ],
)
def test_a_job_with_an_identity_that_builds_is_found(old, new):
    assert old in RELEASE
    assert builds_with_identity(RELEASE.replace(old, new, 1)) != []


def test_everything_that_pip_installs_has_a_hash_or_is_ours():
    """But for older PySparks (make sparks), with which nothing is built that leaves the machine."""
    for line in re.findall(r"-m pip install (.*)", MAKEFILE):
        assert "--require-hashes -r requirements/" in line or "--no-deps" in line, line
    assert "--require-hashes -r requirements/supply.lock" in MAKEFILE


def test_owners_review_what_decides_about_secrets_and_releases():
    owners = (ROOT / ".github" / "CODEOWNERS").read_text("utf-8")
    for place in (
        "/spark_kafka_sink/config/", "/spark_kafka_sink/base/security/", "/.github/",
        "/requirements/", "/pyproject.toml", "/Makefile",
    ):  # fmt: skip
        assert (ROOT / place.strip("/")).exists()
        assert re.search(
            rf"^{re.escape(place)} .*@spark-kafka-sink/security$", owners, re.MULTILINE
        ), place
