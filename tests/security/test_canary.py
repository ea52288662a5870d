"""No secret leaves by any other door than the one to the broker.

A whole Spark application writes with a random string in every secret option, well and badly, with
everything at DEBUG. Then all that it left is searched: logs of the driver and of every worker, the
event log, the UI's REST answers, plans, exceptions, checkpoints, Spark's own temporary files,
pickled writers and commit messages, command lines and environments. The application's name holds a
secret on purpose: the search has to find that one.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.network.fake_registry import FakeRegistry
from tests.security.canaries import files_below, forms, new_canary, search
from tests.security.debug_job import run_at_debug
from tests.security.secret_rows import INLINE, KINDS, TEXTS, Secrets, rows_of, unsigned_token

# One application, all at DEBUG, serves all tests here; on a busy machine it takes its time.
pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]


@contextlib.contextmanager
def identity_provider(token: str) -> Iterator[str]:
    """Gives ``token`` below /token. At /evil it refuses, and shows all that it got."""

    def answer(_: str, path: str, body: bytes) -> tuple[int, dict[str, str], object]:
        if "/token" in path:
            return 200, {}, {"access_token": token, "expires_in": 3600}
        told = server.requests[-1][3]["Authorization"].removeprefix("Basic ")
        plain = base64.b64decode(told).decode()
        secret = plain.partition(":")[2]
        shown = f"{plain} {told} {secret.encode().hex()} {urllib.parse.quote(secret, safe='')}"
        asked = body.decode()
        error = f"invalid_client {secret} {path} {asked} {urllib.parse.unquote_plus(asked)}"
        return 401, {}, {"error": error, "error_description": shown}

    with FakeRegistry(answer) as server:
        yield server.url


@dataclass(frozen=True, repr=False)
class LeftBehind:
    """No repr: a failing test shows what it was given."""

    out: Path
    known: dict[str, str]
    planted: str
    #: With what each came to: ``outcome`` is the error's text, or nothing.
    rows: list[SimpleNamespace]

    def places(self, *parts: str) -> list[tuple[str, bytes]]:
        """All there is to search, or only what stands below these directories."""
        found = [
            p for p in sorted(self.out.iterdir()) if p.is_dir() and (not parts or p.name in parts)
        ]
        return [place for part in found for place in files_below(part, part.name)]


@pytest.fixture(scope="module")
def left_behind(secure_kafka, tmp_path_factory):
    """What the job left: its directory, the canaries, the planted one, what each row came to."""
    home = tmp_path_factory.mktemp("canary")
    out = home / "out"
    for name in ("logs", "events", "rest", "shown", "pickles", "processes", "checkpoints", "local"):
        (out / name).mkdir(parents=True)
    secrets = Secrets(home / "secrets")
    planted = new_canary(spicy=False)
    token = unsigned_token("alice", secrets.new("token"))
    with identity_provider(token) as provider:
        rows = rows_of(secure_kafka, secrets, provider, token)
        spec = {
            "out": str(out),
            "app_name": " ".join(f.decode() for n, f in forms(planted).items() if n != "utf-16"),
            "rows": rows,
            "conf": {
                "spark.ui.enabled": "true",
                "spark.ui.port": "0",
                # Plans before and after each phase, with every option.
                "spark.sql.ui.explainMode": "extended",
                "spark.eventLog.dir": (out / "events").as_uri(),
                "spark.local.dir": str(out / "local"),
                "spark.sql.warehouse.dir": str(home / "warehouse"),
            },
        }
        # The secret of the environment is the password itself: it has to work.
        environment = secrets.environment | {"KPROD_CANARY_ENV": secrets.known["alice's password"]}
        job = "tests.security.canary_job"
        outcomes = run_at_debug(job, spec, out / "logs", environment)
    told = [SimpleNamespace(**row, outcome=outcomes[row["name"]]) for row in rows]
    return LeftBehind(out, secrets.known, planted, told)


def test_each_row_came_to_what_it_is_about(left_behind):
    for row in left_behind.rows:
        if row.says:
            assert re.search(row.says, row.outcome, re.DOTALL), f"{row.name}: {row.outcome!r}"
        else:
            assert row.outcome == "", f"{row.name}: {row.outcome}"


def test_no_secret_is_anywhere_but_where_it_was_put(left_behind):
    referred = {n: v for n, v in left_behind.known.items() if not n.startswith(INLINE)}
    assert set(referred) - {f"{name} by {kind}" for name in TEXTS for kind in KINDS} == {
        "ssl.key.password", "ssl.keystore.password", "ssl.truststore.password", "ssl.keystore.key",
        "alice's password", "a wrong password", "client secret", "token",
    }  # fmt: skip
    assert search(left_behind.places(), referred) == set()


def test_an_inline_secret_is_only_in_the_plan_that_is_sent(left_behind):
    """Spark redacts a *password*; but between its own processes the writer carries it."""
    inline = {n: v for n, v in left_behind.known.items() if n.startswith(INLINE)}
    assert len(inline) == 2
    hits = search(left_behind.places(), inline)
    assert {hit.place for hit in hits} == {
        f"pickles/{INLINE} {what}" for what in ("writer", "stream writer", "source", "again")
    }


def test_the_search_finds_a_planted_secret_in_every_form(left_behind):
    planted, out = left_behind.planted, left_behind.out
    hits = search(left_behind.places(), {"planted": planted})
    for part in ("events", "rest", "processes", "logs"):
        found = {hit.form for hit in hits if hit.place.startswith(part)}
        assert found == forms(planted).keys() - {"utf-16"}, part
    # The kinds that an application's name does not reach.
    for part in ("checkpoints", "shown", "pickles", "local"):
        file = out / part / "planted"
        file.write_bytes(b"..." + forms(planted)["base64+1"] + b"...")
        try:
            hits = search(left_behind.places(part), {"planted": planted})
        finally:
            file.unlink()
        # Reports say whose they are: by the application's name, which is the planted one.
        told = ("/reports/", "shown/kprod/")
        others = {hit.place for hit in hits if not any(part in hit.place for part in told)}
        assert others == {f"{part}/planted"}
        reports = {hit.place for hit in hits} - others
        assert bool(reports) == (part == "shown"), "reports are searched, too"


def test_there_was_something_to_search(left_behind):
    """DEBUG was on in the driver and in workers; every kind of place has content."""
    out, rows = left_behind.out, left_behind.rows
    logs = {path.name: path.read_text(errors="replace") for path in (out / "logs").iterdir()}
    speaking = [name for name, text in logs.items() if "DEBUG:spark_kafka_sink" in text]
    assert len(speaking) >= 3, "the driver, a planner and a worker are different processes"
    assert " DEBUG " in logs["stderr"], "the JVM's own log"
    assert any(path.stat().st_size > 10_000 for path in (out / "events").rglob("*"))
    assert b"description" in (out / "rest" / "sql").read_bytes()
    assert b"sparkProperties" in (out / "rest" / "environment").read_bytes()
    kinds = {path.name.rpartition(" ")[2] for path in (out / "processes").iterdir()}
    assert any("java" in kind for kind in kinds), kinds
    assert any("python" in kind for kind in kinds), kinds
    reports = [json.loads(path.read_text()) for path in (out / "shown").rglob("reports/*.json")]
    assert {"acknowledged", "aborted"} <= {report["outcome"] for report in reports}
    kprod = {path.name: path.read_text() for path in (out / "shown" / "kprod").iterdir()}
    assert "kprod_rows_total" in kprod["metrics"]
    assert kprod["last report"].startswith("WriteReport(")
    for command, says in {
        "check": "TLS", "json": '"steps"', "options": "Options as they count", "show": "Batch ",
        "tail": "Reports (", "list": "No transaction that this principal may DESCRIBE is open",
    }.items():  # fmt: skip
        told = [text for name, text in kprod.items() if name.endswith(f" {command}")]
        assert any(says in text for text in told), command
    for row in rows:
        if row.kind != "pickled":
            exception = out / "shown" / row.name / "exception"
            assert exception.exists() == bool(row.says), row.name
    assert "Physical Plan" in (out / "shown" / "stores" / "explained").read_text()
    assert len(list((out / "checkpoints").rglob("*"))) > 5
    good = sum(not row.says for row in rows)
    assert len(list((out / "pickles").iterdir())) == 9 * good


@given(
    st.binary(max_size=20),
    st.binary(max_size=20),
    st.sampled_from([*forms("x" * 40)]),
)
def test_every_form_is_found_wherever_it_begins(before, after, form):
    secret = new_canary()
    octets = forms(secret)[form]
    assert {hit.form for hit in search([("p", before + octets + after)], {"s": secret})} >= {form}
    for text in (base64.b64encode, base64.urlsafe_b64encode):
        assert search([("p", text(before + secret.encode() + after))], {"s": secret})
    assert not search([("p", before + after)], {"s": secret})
