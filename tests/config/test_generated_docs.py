"""The pages that are made from the code are as the code is."""

import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.cli.option_texts import option_texts
from spark_kafka_sink.cli.txn import blockers_metrics
from spark_kafka_sink.config.names.given import SPARK_KEYS, SPARK_OPTIONS
from spark_kafka_sink.config.option import Status
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS, with_prefix
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.monitoring.instruments import INSTRUMENTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator():
    return runpy.run_path(str(ROOT / "tools" / "generate_docs.py"))


def test_the_pages_in_the_repository_are_fresh(generator, capsys):
    code = generator["main"](["--check"])
    assert code == 0, capsys.readouterr().out


def test_a_stale_page_is_shown_with_what_differs(generator, tmp_path, capsys):
    assert generator["main"](["--root", str(tmp_path)]) == 0
    assert generator["main"](["--check", "--root", str(tmp_path)]) == 0
    page = tmp_path / "docs" / "options.md"
    page.write_text(page.read_text().replace("`kafka.acks`", "`kafka.ack`"))
    capsys.readouterr()
    assert generator["main"](["--check", "--root", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "docs/options.md is stale; run: python tools/generate_docs.py" in out
    assert '+### <a id="kafka-acks"></a>`kafka.acks`' in out


def test_each_option_has_a_text_and_each_text_an_option():
    texts, options = option_texts(), PRODUCER_OPTIONS | SINK_OPTIONS
    without = (Status.REFUSED, Status.REMOVED)
    named = {n for n, o in options.items() if not o.internal and o.status not in without}
    assert texts.what.keys() == named
    assert all(text.endswith(".") for text in texts.what.values())
    counting = {n for n, o in PRODUCER_OPTIONS.items() if o.status is Status.HONOURED}
    assert texts.importance.keys() == counting
    assert texts.java_defaults.keys() <= named
    assert tuple(texts.spark) == SPARK_OPTIONS


def test_a_list_of_a_text_is_one_line_outside_of_the_page(generator):
    texts = option_texts()
    items = "\n- `1`: when the leader has the batch.\n- `0`: when the producer has sent the batch."
    assert items in texts.on_page["acks"]
    assert items in generator["options_page"]()
    assert "`1`: when the leader has the batch. `0`: when the producer" in texts.what["acks"]
    assert not any("\n" in text for text in texts.what.values())


def test_every_option_is_on_its_page_or_the_appendix(generator):
    page = generator["options_page"]() + generator["refused_options_page"]()
    for name, option in PRODUCER_OPTIONS.items():
        assert (f"`kafka.{name}`" in page) is not option.internal, name
    for name, option in SINK_OPTIONS.items():
        if name.lower() in SPARK_KEYS:
            continue  # the appendix has it among Spark's own
        assert (f"`{name}`" in page) is not option.internal, name


def test_the_label_of_a_topic_metric_comes_from_its_definition(generator, monkeypatch):
    monkeypatch.delattr(blockers_metrics, "metrics_text")
    page = generator["metrics_page"]()
    assert "- `kprod_topic_open_transactions{whose}`: " in page
    assert "- `kprod_topic_held_offsets`: " in page


def test_every_exported_metric_is_on_the_page(generator):
    """Those of running writes were missing: the page went through the origins by hand."""
    page = generator["metrics_page"]()
    for one in INSTRUMENTS:
        assert re.search(rf"`{one.prometheus_name}[`{{]", page), one.prometheus_name


def test_an_internal_option_is_on_no_page_and_never_suggested(generator, monkeypatch):
    batch = PRODUCER_OPTIONS["batch.size"]
    hidden = replace(batch, name="kprod.batch.sizes", internal=True)
    monkeypatch.setitem(PRODUCER_OPTIONS, hidden.name, hidden)
    own = replace(SINK_OPTIONS["topic"], name="topicForTests", internal=True)
    monkeypatch.setitem(SINK_OPTIONS, own.name, own)
    page = generator["options_page"]() + generator["refused_options_page"]()
    assert hidden.name not in page
    assert own.name not in page
    servers = {"kafka.bootstrap.servers": "a:1"}
    for near in ("kafka.kprod.batch.size", "topicForTest"):
        with pytest.raises(ConfigError) as caught:
            parse_sink_config(servers | {near: "1"})
        assert hidden.name not in caught.value.hint
        assert own.name not in caught.value.hint
    assert parse_sink_config(servers | {f"kafka.{hidden.name}": "7"}).warnings == ()


def test_every_option_that_is_obeyed_has_an_anchor(generator):
    page = generator["options_page"]() + generator["refused_options_page"]()
    anchors = re.findall(r'<a id="([a-z0-9-]+)"></a>', page)
    assert len(anchors) == len(set(anchors)) > 60
    assert {"kafka-batch-size", "deliveryguarantee"} <= set(anchors)


def test_a_named_option_has_its_prefix_and_is_a_link(generator):
    page = generator["options_page"]()
    anchors = set(re.findall(r'<a id="([a-z0-9-]+)"></a>', page))
    links = set(re.findall(r"\]\(#([a-z0-9-]+)\)", page))
    assert links <= anchors
    assert {"kafka-max-block-ms", "errors-tolerance", "changelog-mode"} <= links
    text = "see linger.ms, linger.ms and `retries=0`; errors.tolerance=all: no. x.linger.ms:A"
    linked = generator["_with_links"](with_prefix(text, "kafka."), "errors.tolerance")
    assert linked == (
        "see [`kafka.linger.ms`](#kafka-linger-ms), `kafka.linger.ms` and"
        " [`kafka.retries=0`](#kafka-retries); `errors.tolerance=all`: no. x.linger.ms:A"
    )
    texts = option_texts().what.values()
    assert not any(re.search(r"(?<![\w.])(?:linger\.ms|acks=|retries=)", one) for one in texts)


def test_a_behaviour_without_an_existing_test_is_a_problem(generator, monkeypatch):
    behaviours = generator["upstream_behaviours"]
    found = {"SenderTest#testRetries": {"test_x"}, "SenderTest#testNot": {"test_y"}}
    monkeypatch.setattr(behaviours, "_tests_by_name", lambda: found)
    problems = behaviours.problems()
    assert "SenderTest#testSendInOrder has neither a test nor a reason" in problems
    assert not any("testRetries" in problem for problem in problems)
    assert "test_y: SenderTest#testNot is not in the list" in problems
