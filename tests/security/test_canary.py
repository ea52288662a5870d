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
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.config.option import Status
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS
from spark_kafka_sink.config.secret_references import takes_references
from tests.security.canaries import files_below, forms, new_canary, search

# One application, all at DEBUG, serves all tests here; on a busy machine it takes its time.
pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"

#: The secrets that are given as they are, to see what Spark does with them.
INLINE, INLINE_LOGIN = "inline", "inline login module"

#: So that DEBUG is on in the workers, too, which nobody else configures.
SITECUSTOMIZE = """
import logging, os
logging.basicConfig(level=logging.DEBUG,
                    filename=os.path.join(os.environ["KPROD_TEST_LOGS"], f"py-{os.getpid()}.log"))
"""


@contextlib.contextmanager
def identity_provider(token: str) -> Iterator[str]:
    """Gives ``token`` below /token. At /evil it refuses, and shows all that it was told."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = self.headers["Authorization"].removeprefix("Basic ")
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.path.startswith("/token"):
                self._answer(200, {"access_token": token, "expires_in": 3600})
                return
            plain = base64.b64decode(told).decode()
            secret = plain.partition(":")[2]
            shown = f"{plain} {told} {secret.encode().hex()} {urllib.parse.quote(secret, safe='')}"
            error = f"invalid_client {secret}"
            if "scope=" in body:
                error = f"{self.path} {body} {urllib.parse.unquote_plus(body)}"
            self._answer(401, {"error": error, "error_description": shown})

        def _answer(self, status: int, fields: dict[str, object]) -> None:
            content = json.dumps(fields).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def unsigned_token(user: str, canary: str) -> str:
    def part(fields: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")

    claims = {"sub": user, "exp": 4_000_000_000, "iat": 1_700_000_000, "jti": canary}
    return f"{part({'alg': 'none'})}.{part(claims)}."


class Secrets:
    """Canaries by name, and the files that hold them, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.known: dict[str, str] = {}
        #: For those who read it from there.
        self.environment: dict[str, str] = {}

    def new(self, name: str, *, spicy: bool = True) -> str:
        self.known[name] = new_canary(spicy=spicy)
        return self.known[name]

    def reference(self, kind: str, name: str, content: str) -> str:
        """To a file or a variable (``kind``) with that content."""
        if kind == "file":
            return self.file(name, content)
        variable = f"KPROD_CANARY_{len(self.environment)}"
        self.environment[variable] = content
        return f"${{env:{variable}}}"

    def file(self, name: str, content: str | bytes) -> str:
        """A reference to a file with that content."""
        path = self.directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return f"${{file:{path}}}"


def stores(secure, secrets: Secrets) -> dict[str, str]:
    """Alice's key encrypted, plain, and in PKCS12; the CA in PKCS12."""
    security = secure.cluster.security
    pem = security.client_keys["alice"].read_bytes()
    key = load_pem_private_key(pem, None)
    certificate = load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERT") :])
    ca = load_pem_x509_certificate(security.ca.read_bytes())

    def locked(name: str) -> BestAvailableEncryption:
        return BestAvailableEncryption(secrets.new(name).encode())

    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked("ssl.key.password"))
    inline = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked(INLINE))
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # A line of the key itself is a secret that was there before us.
    secrets.known["ssl.keystore.key"] = plain.decode().splitlines()[2]
    store = pkcs12.serialize_key_and_certificates(
        b"alice", key, certificate, [ca], locked("ssl.keystore.password")
    )
    trust = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(ca, b"ca")], locked("ssl.truststore.password")
    )
    secrets.file("encrypted.pem", encrypted + pem[pem.index(b"-----BEGIN CERT") :])
    secrets.file("inline.pem", inline + pem[pem.index(b"-----BEGIN CERT") :])
    secrets.file("alice.p12", store)
    secrets.file("trust.p12", trust)
    return {
        "encrypted": str(secrets.directory / "encrypted.pem"),
        "inline": str(secrets.directory / "inline.pem"),
        "store": str(secrets.directory / "alice.p12"),
        "trust": str(secrets.directory / "trust.p12"),
        "key": secrets.file("key.pem", plain),
        "chain": secrets.file("chain.pem", pem[pem.index(b"-----BEGIN CERT") :]),
        "key password": secrets.file("key password", secrets.known["ssl.key.password"] + "\n"),
        "store password": secrets.file("store password", secrets.known["ssl.keystore.password"]),
        "trust password": secrets.file("trust password", secrets.known["ssl.truststore.password"]),
    }


#: Options of TLS and SASL that are no secret; what a reference leads to is one all the same.
TEXTS = [
    option.name
    for option in PRODUCER_OPTIONS.values()
    if takes_references(option) and not option.secret and option.status is Status.HONOURED
]


def rows_of_texts(secure, secrets: Secrets, provider: str, row) -> list[dict[str, object]]:
    """Each of ``TEXTS`` by file and by variable, where it works and where it does not."""
    cluster, rows = secure.cluster, []
    ca = {"ssl.truststore.location": str(cluster.security.ca)}
    oauth = "sasl.oauthbearer."
    beside = {
        "ssl.truststore.location": {},
        "ssl.keystore.location": ca,
        "sasl.mechanism": ca | {"sasl.username": "alice", "sasl.password": "p"},
        "sasl.kerberos.service.name": ca | {"sasl.mechanism": "GSSAPI"},
    } | {
        f"{oauth}{name}": ca
        | {
            "sasl.mechanism": "OAUTHBEARER",
            f"{oauth}token.endpoint.url": f"{provider}/evil",
            f"{oauth}client.credentials.client.id": "i",
            f"{oauth}client.credentials.client.secret": "${env:KPROD_CANARY_ENV}",
        }
        for name in ("token.endpoint.url", "client.credentials.client.id", "scope")
    }
    assert set(TEXTS) <= set(beside)
    for kind in ("file", "env"):
        good: dict[str, str] = {}
        for name in TEXTS:
            canary = secrets.new(f"{name} by {kind}", spicy=False)
            listener = "SSL" if name.startswith("ssl.") else "SASL_SSL"
            # The endpoint's is a URL: an address that nobody has, and no path that is not there.
            wrong = f"https://{canary}.invalid/" if name.endswith("url") else canary
            options = beside[name] | {name: secrets.reference(kind, f"wrong {name}", wrong)}
            ways = {
                "ssl.truststore.location file": "batch",
                "ssl.truststore.location env": "stream",
            }
            how = ways.get(f"{name} {kind}", "producer")
            rows.append(row(f"wrong {name} by {kind}", listener, options, says=".", kind=how))
            if name.startswith("ssl."):
                keys = cluster.security.client_keys
                source = cluster.security.ca if "trust" in name else keys["alice"]
                directory = secrets.directory / canary
                directory.mkdir()
                shutil.copy(source, directory / "it.pem")
                right = str(directory / "it.pem")
            else:
                right = f"{provider}/token/{canary}" if name.endswith("url") else canary
            good[name] = secrets.reference(kind, f"right {name}", right)
        paths = {n: v for n, v in good.items() if n.startswith("ssl.")}
        rows.append(row(f"paths by {kind}", "SSL", paths))
        token = {n: v for n, v in good.items() if n.startswith(oauth)}
        options = beside[f"{oauth}scope"] | token
        rows.append(row(f"token endpoint by {kind}", "SASL_SSL", options))
    return rows


def rows_of(secure, secrets: Secrets, provider: str, token: str) -> list[dict[str, object]]:
    """One row for each secret option and each way to fail; ``says`` is what its error says."""
    cluster, files = secure.cluster, stores(secure, secrets)
    passwords = dict(cluster.security.passwords)
    secrets.known |= {"alice's password": passwords["alice"], INLINE_LOGIN: passwords["bob"]}
    right = secrets.file("alice", passwords["alice"])
    wrong = secrets.file("wrong", secrets.new("a wrong password"))
    ca = {"ssl.truststore.location": str(cluster.security.ca)}
    topic = secure.kafka.unique_topic("canary")

    def row(name, listener, options, *, says="", kind="pickled", known=None):
        prefixed = {f"kafka.{n}": v for n, v in options.items()}
        protocol = {} if known else {"kafka.security.protocol": listener}
        servers = {"kafka.bootstrap.servers": cluster.bootstrap_of(listener), "topic": topic}
        prefixed["kafka.max.block.ms"] = "8000"
        return {
            "name": name, "kind": kind, "options": servers | protocol | prefixed | (known or {}),
            "says": says,
        }  # fmt: skip

    def failing(name, listener, options, *, says):
        return row(name, listener, options, says=says, kind="producer")

    def user(reference, mechanism="SCRAM-SHA-512"):
        return {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": reference}

    def jaas(inner, mechanism="PLAIN"):
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": inner}

    client = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.credentials.client.id": "canary-client",
        "sasl.oauthbearer.client.credentials.client.secret": secrets.file(
            "client secret", secrets.new("client secret")
        ),
    }
    config_file = secrets.directory / "client.properties"
    config_file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.location={ca['ssl.truststore.location']}\n"
        f'sasl.jaas.config={PLAIN} username="alice" password="{passwords["alice"]}";\n'
    )
    refused = "not accept|SASL_AUTHENTICATION_FAILED|uthentication"
    return [
        row("key by reference", "SSL", ca | {"ssl.keystore.key": files["key"],
            "ssl.keystore.certificate.chain": files["chain"]}, kind="batch"),
        row("encrypted key", "SSL", ca | {"ssl.keystore.location": files["encrypted"],
            "ssl.key.password": files["key password"]}),
        row("stores", "SSL", {"ssl.keystore.location": files["store"],
            "ssl.keystore.password": files["store password"],
            "ssl.truststore.location": files["trust"],
            "ssl.truststore.password": files["trust password"]}, kind="stream"),
        row("SCRAM", "SASL_SSL", ca | user(right), kind="stream"),
        row("SCRAM from the environment", "SASL_SSL", ca | user("${env:KPROD_CANARY_ENV}")),
        row("login module", "SASL_SSL",
            ca | jaas(f'{PLAIN} username="alice" password="{right}";')),
        row("configFile", "SASL_SSL", {}, known={"configFile": str(config_file)},
            kind="batch"),
        row("token endpoint", "SASL_SSL", ca | client
            | {"sasl.oauthbearer.token.endpoint.url": f"{provider}/token"}),
        row("token", "SASL_SSL", ca | {"sasl.mechanism": "OAUTHBEARER",
            "sasl.password": secrets.file("token", token)}),
        row(INLINE, "SSL", ca | {"ssl.keystore.location": files["inline"],
            "ssl.key.password": secrets.known[INLINE]}, kind="batch"),
        row("inline login module", "SASL_SSL",
            ca | jaas(f'{PLAIN} username="bob" password="{secrets.known[INLINE_LOGIN]}";'),
            says="AUTHORIZATION_FAILED", kind="stream"),
        # what fails
        row("wrong password", "SASL_SSL", ca | user(wrong), says=refused, kind="batch"),
        failing("wrong password for PLAIN", "SASL_PLAINTEXT", user(wrong, "PLAIN"), says=refused),
        row("wrong password in a stream", "SASL_SSL", ca | user(wrong, "PLAIN"), says=refused,
            kind="stream"),
        failing("wrong key password", "SSL", ca | {"ssl.keystore.location": files["encrypted"],
            "ssl.key.password": wrong}, says="ssl.key.password"),
        failing("wrong store password", "SSL", ca | {"ssl.keystore.location": files["store"],
            "ssl.keystore.password": wrong}, says="ssl.keystore.password"),
        failing("wrong trust password", "SSL", {"ssl.truststore.location": files["trust"],
            "ssl.truststore.password": wrong}, says="ssl.truststore.password"),
        failing("a key that is none", "SSL", ca | {"ssl.keystore.key": wrong,
            "ssl.keystore.certificate.chain": files["chain"]}, says="ssl.keystore.key"),
        failing("wrong CA", "SSL", {"ssl.truststore.location": str(secure.other_ca),
            "ssl.keystore.location": files["encrypted"], "ssl.key.password": files["key password"]},
            says="not trusted"),
        failing("a login module that is cut", "SASL_SSL", ca | jaas(
            secrets.file("cut", f'{PLAIN} username="alice" password="{passwords["alice"]}')),
            says="sasl.jaas.config"),
        failing("evil token endpoint", "SASL_SSL", ca | client
            | {"sasl.oauthbearer.token.endpoint.url": f"{provider}/evil"}, says="401"),
        row("missing file", "SASL_SSL", ca | user("${file:/nowhere/pw}"),
            says=r"\$\{file:/nowhere/pw\}.*the driver", kind="batch"),
        *rows_of_texts(secure, secrets, provider, row),
    ]  # fmt: skip


@dataclass(frozen=True)
class Told:
    """A row of the job and what it came to: ``outcome`` is the error's text, or nothing."""

    name: str
    kind: str
    options: dict[str, str]
    says: str
    outcome: str


@dataclass(frozen=True, repr=False)
class LeftBehind:
    """No repr: a failing test shows what it was given."""

    out: Path
    known: dict[str, str]
    planted: str
    rows: list[Told]

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
    (home / "site").mkdir()
    (home / "site" / "sitecustomize.py").write_text(SITECUSTOMIZE)
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
                "spark.eventLog.enabled": "true",
                "spark.eventLog.compress": "false",
                "spark.eventLog.dir": (out / "events").as_uri(),
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                # It lives for seconds.
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "spark.local.dir": str(out / "local"),
                "spark.sql.warehouse.dir": str(home / "warehouse"),
                "spark.sql.execution.arrow.pyspark.enabled": "true",
            },
        }
        (home / "spec.json").write_text(json.dumps(spec))
        # The secret of the environment is the password itself: it has to work.
        environment = (
            os.environ
            | secrets.environment
            | {
                "KPROD_CANARY_ENV": secrets.known["alice's password"],
                "KPROD_TEST_LOGS": str(out / "logs"),
                "PYTHONPATH": os.pathsep.join([str(home / "site"), str(ROOT)]),
            }
        )
        with (out / "logs" / "stderr").open("wb") as log:
            ended = subprocess.run(
                [sys.executable, "-m", "tests.security.canary_job", str(home / "spec.json")],
                cwd=home,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=500,
                check=False,
            )
    text = (out / "logs" / "stderr").read_text(errors="replace")
    assert ended.returncode == 0, text[-4000:]
    outcomes = json.loads((out / "outcomes.json").read_text())
    return LeftBehind(
        out, secrets.known, planted, [Told(**r, outcome=outcomes[r["name"]]) for r in rows]
    )


def test_each_row_came_to_what_it_is_about(left_behind):
    for row in left_behind.rows:
        if row.says:
            assert re.search(row.says, row.outcome, re.DOTALL), f"{row.name}: {row.outcome!r}"
        else:
            assert row.outcome == "", f"{row.name}: {row.outcome}"


def test_no_secret_is_anywhere_but_where_it_was_put(left_behind):
    referred = {n: v for n, v in left_behind.known.items() if not n.startswith(INLINE)}
    assert set(referred) - {f"{name} by {kind}" for name in TEXTS for kind in ("file", "env")} == {
        "ssl.key.password", "ssl.keystore.password", "ssl.truststore.password", "ssl.keystore.key",
        "alice's password", "a wrong password", "client secret", "token",
    }  # fmt: skip
    assert search(left_behind.places(), referred) == set()


def test_every_text_was_given_by_file_and_by_variable_and_failed_by_its_reference(left_behind):
    assert len(TEXTS) >= 6
    for name in TEXTS:
        for kind in ("file", "env"):
            assert f"{name} by {kind}" in left_behind.known
            (row,) = (r for r in left_behind.rows if r.name == f"wrong {name} by {kind}")
            reference = row.options[f"kafka.{name}"]
            assert reference.startswith(f"${{{kind}:")
            if name.startswith("ssl.") or name.endswith(("url", "mechanism")):
                assert reference in row.outcome, row.outcome


def test_an_inline_secret_is_in_the_plan_that_travels_and_nowhere_else(left_behind):
    """Spark redacts a *password*; but between its own processes the writer carries it."""
    inline = {n: v for n, v in left_behind.known.items() if n.startswith(INLINE)}
    assert len(inline) == 2
    hits = search(left_behind.places(), inline)
    assert {hit.place for hit in hits} == {
        f"pickles/{INLINE} {what}" for what in ("writer", "stream writer", "source", "again")
    }


def test_the_search_finds_a_planted_secret_in_every_form_and_kind_of_place(left_behind):
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
        "tail": "Reports (", "list": "No transaction is open",
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
