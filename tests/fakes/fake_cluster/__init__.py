"""A Kafka cluster without sockets, threads or time of its own.

::

    cluster = FakeCluster(nodes=3, random=Random(7))
    cluster.create_topic("t", partitions=2)
    connection = cluster.connect(1)          # None while that broker is down
    connection.send(frame, now)              # one whole request, without its length prefix
    cluster.next_due_ms()                    # when something happens by itself, or NEVER
    connection.due(now)                      # answers that leave the broker now, each returned once
    connection.closed                        # the broker hung up
    connection.close()                       # the peer is gone; what it asked is still worked on
    connection.pending                       # there is still something to work on or to tell

Requests are read and answers written by kio, not by our codec. Time comes with each call as
``now`` (ms) and never goes back; what happens later (markers, timeouts, late answers) waits in a
queue and happens, in order, as soon as anybody comes by with a later ``now``.

``cluster.control`` lays faults in the way of requests; see :class:`Control`. Faults of the cluster
itself: :meth:`FakeCluster.stop_broker`, ``start_broker``, ``restart_broker``, ``move_leader``,
``shrink_isr``, ``cut_off`` and ``rejoin``, ``move_coordinator`` (which may take time),
``expire_producer``; and what takes time: ``append_ms``, ``failover_ms``.

Left out: replication lag (a follower has all its leader has), quotas, ACLs, groups, segments. One
file for each API (``api_*.py``); what they share is the log (``partition_log.py``), what a broker
refuses of a batch (``batch_checks.py``) and the coordinator (``transaction_coordinator.py``).
That all this is like a broker is shown by ``tests/conformance/test_fake_cluster_like_a_broker.py``.
"""

from tests.fakes.fake_cluster.cluster import FakeCluster
from tests.fakes.fake_cluster.connection import FakeConnection
from tests.fakes.fake_cluster.control import FOREVER, Control

__all__ = ["FOREVER", "Control", "FakeCluster", "FakeConnection"]
