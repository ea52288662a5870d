"""``kprod txn`` on a broker with TLS, SASL and ACLs: how it gets in, and which rights it names."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path

from typer.testing import CliRunner, Result

from spark_kafka_sink.cli.app import app
from tests.secure_kafka import SecureKafka, acl


def properties(path: Path, options: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    return path


def kprod(file: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner(env=env or {}).invoke(app, ["txn", *arguments, "-c", str(file)])


def test_a_configs_sasl_works_and_its_secret_is_never_shown(
    secure_kafka: SecureKafka, tmp_path: Path
) -> None:
    options = dict(secure_kafka.cluster.client_options("SASL_SSL", "SCRAM-SHA-512"))
    jaas = options.pop("sasl.jaas.config")
    file = properties(
        tmp_path / "client.properties", options | {"sasl.jaas.config": "${env:KPROD_TEST_JAAS}"}
    )
    log = secure_kafka.kafka.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    listed = kprod(file, "list", "p", "--json", "--log-topic", log, env={"KPROD_TEST_JAAS": jaas})
    assert listed.exit_code == 0, listed.output
    assert json.loads(listed.stdout)["logTopicExists"] is True
    wrong = jaas.replace('password="', 'password="c4nary')
    refused = kprod(file, "list", "p", env={"KPROD_TEST_JAAS": wrong})
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert "SCRAM-SHA-512" in refused.stderr
    assert "c4nary" not in refused.output


def test_a_right_that_is_missing_is_named(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    """Brokers leave out of a list what one may not see: without a look first, nothing would seem
    to be open.
    """
    bob = secure_kafka.cluster.client_options("SSL", user="bob")
    file = properties(tmp_path / "bob.properties", bob)
    prefix = f"p{uuid.uuid4().hex[:8]}"
    log = secure_kafka.kafka.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    ids = [("TRANSACTIONAL_ID", f"{prefix}~{end}", "DESCRIBE") for end in ("~check", "r~g2.w~0")]
    arguments = ("list", prefix, "--log-topic", log)
    with acl(secure_kafka, "bob", ("TOPIC", log, "READ")):
        refused = kprod(file, *arguments)
        assert refused.exit_code == 1, refused.output
        assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in refused.stderr
        assert "DESCRIBE on the transactional id" in refused.stderr
    with acl(secure_kafka, "bob", *ids):
        refused = kprod(file, "blockers", log)
        assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr
        assert "(the principal needs READ on the topic; " in refused.stderr
        letters = CliRunner().invoke(app, ["deadletters", log, "-c", str(file)])
        assert "(the principal needs READ on the topic; " in letters.stderr
        refused = kprod(file, *arguments)
        assert refused.exit_code == 1
        assert f"READ and WRITE on the topic '{log}'" in refused.stderr
        assert refused.stderr.count("\n") == 1
    with acl(secure_kafka, "bob", ("TOPIC", log, "READ"), *ids):
        listed = kprod(file, *arguments)
        assert listed.exit_code == 0, listed.output
        assert "No transaction" in listed.stdout
