"""A Delta table and the stream of its change feed, in applications of their own."""

from __future__ import annotations

import pytest

from tests.changelogs.delta_table import jars_or_skip
from tests.changelogs.proof import CLEANED, Proof, difference

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1500)]


def test_a_delta_table_is_its_topic_after_a_killed_driver(kafka, tmp_path):
    jars_or_skip()
    topic = kafka.unique_topic("delta", partitions=3, configs=CLEANED)
    proof = Proof(tmp_path, kafka.bootstrap, topic, seed=46, keys=60)
    proof.run(4, killed="after")
    proof.run(12)
    assert proof.again() >= 1, "Spark repeats the micro-batch whose end it has not noted"
    assert difference(proof.cleaned(), proof.table()) == {}
