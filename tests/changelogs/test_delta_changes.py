"""A Delta table and the stream of its change feed, in applications of their own."""

from __future__ import annotations

import pytest

from spark_kafka_sink.protocol.request import ApiKey
from tests.changelogs.applications import Victim
from tests.changelogs.delta_table import jars_or_skip
from tests.changelogs.kills import Moment, Place
from tests.changelogs.proof import CLEANED, CLEANER, Proof, difference
from tests.exactly_once.harness import proxied_cluster
from tests.faults.proxy import Side

pytestmark = [pytest.mark.broker, pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1500)]

#: The commit log has a decision, or the note that the decided transactions are ended.
NOTED = Moment(Victim.ALL, 0.0, ApiKey.END_TXN, "log", Side.RESPONSE)


def test_a_delta_table_is_its_topic_after_killed_drivers(tmp_path):
    jars_or_skip()
    with proxied_cluster(1, tmp_path / "world", overrides=CLEANER) as world:
        topic = world.kafka.unique_topic("delta", partitions=3, configs=CLEANED)
        with Proof(world, topic, seed=46, keys=60, changes=40, ahead=4) as proof:
            for version in (4, 8):
                proof.kill(version, NOTED)
            proof.finish()
            deaths = [kill.death for kill in proof.kills]
            assert len(deaths) == 2
            assert {death.place for death in deaths} <= {Place.DECIDED, Place.ENDED}
            assert all(proof.micro_batches()[death.batch] > 1 for death in deaths)
            assert difference(proof.cleaned(), proof.table()) == {}
