"""Which groups have members: ListGroups with states (KIP-518, brokers since 2.6).

Owns: the request. Never: what follows from its response
(``datasource/exactly_once/offsets_group.py``, ``cli/operations/held_partitions.py``).
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.protocol.messages.list_groups import ListGroupsRequest

#: The groups with members, of any type of group, that a broker coordinates: in the states of
#: groups of consumers, of share groups and of streams but for Empty and Dead. (A broker that
#: doesn't know a state has no group in it.) The response has those that the principal may
#: describe; READ on a group includes that.
LIST_GROUPS: Final = ListGroupsRequest(
    states_filter=(
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Assigning",
        "Reconciling",
        "NotReady",
    )
)
