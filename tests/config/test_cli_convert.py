"""``kprod convert``: another client's properties as ours, what is lost, and no secret."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from spark_kafka_sink.cli.app import app
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.config.producer_config import ProducerConfig


def convert(tmp_path: Path, text: str, code: int = 0) -> Result:
    path = tmp_path / "before.properties"
    path.write_text(text)
    result = CliRunner().invoke(app, ["convert", str(path)])
    assert result.exit_code == code, result.output
    return result


def read(tmp_path: Path, result: Result) -> ProducerConfig:
    """What comes out is a configFile."""
    path = tmp_path / "after.properties"
    path.write_text(result.stdout)
    return parse_sink_config({"configFile": str(path)}).producer


def test_librdkafkas_names_become_javas_with_its_partitioner(tmp_path):
    result = convert(
        tmp_path,
        "metadata.broker.list=b:9092\nqueue.buffering.max.ms=5\ncompression.codec=lz4\n"
        "queue.buffering.max.kbytes=2048\nqueue.buffering.max.messages=10\nstatistics.interval.ms=1\n"
        "linger.ms=9\n",
    )
    config = read(tmp_path, result)
    assert (config.linger_ms, config.compression_type) == (5, "lz4")
    assert config.buffer_memory == 2048 * 1024
    assert config.partitioner_class == "consistent_random"
    lost = [line for line in result.stderr.splitlines() if line.startswith("kprod: lost: ")]
    assert [line.split()[2].rstrip(":") for line in lost] == [
        *("queue.buffering.max.messages", "statistics.interval.ms", "linger.ms"),
    ]
    assert "queue.buffering.max.ms is linger.ms: Java's name" in result.stderr


def test_a_partitioner_that_was_chosen_is_kept(tmp_path):
    result = convert(tmp_path, "metadata.broker.list=b:9092\npartitioner=murmur2_random\n")
    assert read(tmp_path, result).partitioner_class == "murmur2_random"


def test_sparks_options_and_other_clients_lines(tmp_path):
    result = convert(
        tmp_path,
        "kafka.bootstrap.servers=b:9092\nkafka.acks=all\ntopic=orders\ngroup.id=g\n"
        "kafka.compresion.type=lz4\nkafka.metric.reporters=a.B\n",
    )
    assert result.stdout.splitlines() == ["bootstrap.servers=b:9092", "acks=all", "topic=orders"]
    assert "did you mean compression.type?" in result.stderr
    assert "lost: group.id: it is another client's" in result.stderr
    assert "lost: kafka.metric.reporters: " in result.stderr


def test_a_jvm_interceptor_is_dropped_and_a_python_one_kept(tmp_path):
    """A write would refuse it; nothing is sent elsewhere without it, as without a partitioner."""
    result = convert(
        tmp_path, "bootstrap.servers=b:1\ninterceptor.classes=com.example.Audit,org.x.T\n"
    )
    assert result.stdout == "bootstrap.servers=b:1\n"
    assert "lost: interceptor.classes: classes of the JVM can't run" in result.stderr
    result = convert(tmp_path, "bootstrap.servers=b:1\ninterceptor.classes=ops.audit:Audit\n")
    assert read(tmp_path, result).interceptor_classes == ("ops.audit:Audit",)


def test_no_secret_is_shown_and_all_work(tmp_path):
    result = convert(
        tmp_path,
        "bootstrap.servers=b:9092\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.username=u\nsasl.password=c4nary\n",
    )
    assert "c4nary" not in result.output
    assert "sasl.password=${file:" in result.stdout
    read(tmp_path, result)


def test_contradictions_are_reported_after_the_result(tmp_path):
    result = convert(tmp_path, "bootstrap.servers=b:9092\nssl.ca.location=/ca.pem\n", code=1)
    assert "ssl.truststore.location=/ca.pem" in result.stdout
    assert "would have no effect" in result.stderr
    assert CliRunner().invoke(app, ["convert", "/no/such.file"]).exit_code == 2
