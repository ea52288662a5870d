"""Every way in which an option has a file read, and a report that goes to one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.base.security.secret_references import resolve
from spark_kafka_sink.config.logins.oauth_settings import TokenFile
from spark_kafka_sink.config.names.config_file import read_lines
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.report.destinations import publish
from spark_kafka_sink.datasource.report.report_of_batch import report_of_batch
from spark_kafka_sink.datasource.report.write_report import WriteOutcome
from spark_kafka_sink.network.auth.token_sources import token_fetcher
from spark_kafka_sink.network.tls.key_stores import read_key_store, read_trust_store
from tests.sasl.identity_provider import settings_of

LINE, CONFIG_FILE = "sasl.username: ${file:", "configFile "
#: By what the error begins with.
READERS: dict[str, Callable[[Path | str], object]] = {
    "sasl.password: ${file:": lambda p: resolve({"sasl.password": Password(f"${{file:{p}}}")}),
    LINE: lambda p: resolve({"sasl.username": Password(f"${{file:{p}:k}}")}),
    "ssl.truststore.location=": lambda p: read_trust_store({"ssl.truststore.location": str(p)}),
    "ssl.keystore.location=": lambda p: read_key_store({"ssl.keystore.location": str(p)}),
    "sasl.oauthbearer.token.endpoint.url: ": lambda p: token_fetcher(
        settings_of(TokenFile(str(p))), SystemClock()
    )("b"),
    CONFIG_FILE: lambda p: read_lines(str(p)),
}


def publish_to(path: str) -> None:
    """A report of a batch, as a commit hands it to ``reportPath``."""
    config = parse_sink_config({"kafka.bootstrap.servers": "h:1", "topic": "t", "reportPath": path})
    publish(report_of_batch(config, [], WriteOutcome.ABORTED, unfinished=[0]), config)
