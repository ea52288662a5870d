"""Checks the consumer group of the option offsetsGroup: its id, and that no consumer uses it.

The transactions of a write commit the offsets of the query's sources to this group
(``transactions/offset_commits.py``). Brokers accept these offsets for every group, because the
request names no member of the group. If consumers used the group, they would continue at these
offsets after their next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_kafka_sink.admin.call import Call, CoordinatorKey
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.protocol.group_requests import LIST_GROUPS
from spark_kafka_sink.protocol.transaction_requests import CoordinatorType

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

#: The time in ms in which a group without members is not checked again.
_CACHE_MS: Final = 60_000

#: Kafka's own limit is 32767 bytes; tools and metrics don't show groups of that length.
_LONGEST_GROUP_ID: Final = 1024

#: By bootstrap servers and group: the time (clock of the clients, ms) until which it is not checked
#: again.
_checked: ProcessLocal[dict[tuple[tuple[tuple[str, int], ...], str], int]] = ProcessLocal(dict)


def check_group_id(option: str, value: str) -> str:
    """Returns ``value``. Raises ConfigError if ``value`` is not a valid group id. ``option`` is the
    name of the option, for the error.
    """
    try:
        size = len(value.encode())
    except UnicodeEncodeError:  # a surrogate
        size = 0
    if not 0 < size <= _LONGEST_GROUP_ID or not value.isprintable():
        raise ConfigError(
            f"{option} is '{safe_text(value, 120)}'; printable characters are allowed, at least "
            f"one and at most {_LONGEST_GROUP_ID} bytes of them",
            hint="the name is the group.id whose offsets consumers and lag tools read",
        )
    return value


def refuse_members(client: TransactionClient, group_id: str) -> None:
    """Raises ConfigError if the group ``group_id`` has members. Groups of all types (such as
    classic and share) are checked. Raises AuthorizationError if the principal lacks a right.

    If the group has no members, the result is cached for 60 s.
    """
    key = (client.config.bootstrap_servers, group_id)
    if _checked().get(key, 0) > client.clock.now_ms():
        return
    call = Call(
        LIST_GROUPS,
        CoordinatorKey(group_id, CoordinatorType.GROUP),
        f"ListGroups for offsetsGroup '{safe_text(group_id)}'",
        lambda response: response.error_code,
        "READ on the group",
    )
    groups = client.loop.send_and_receive(call, client.deadline()).groups
    found = next((one for one in groups if one.group_id == group_id), None)
    if found is not None:
        of_type = f"{safe_text(found.group_type)} " if found.group_type else ""
        raise ConfigError(
            f"offsetsGroup '{safe_text(group_id)}' is a {of_type}group with members (state "
            f"{safe_text(found.group_state)}): their position would be overwritten",
            hint="choose a group that no consumer uses, or stop the consumers; with"
            " offsetsGroupInUse=allow the write commits the group's offsets nevertheless",
        )
    _checked()[key] = client.clock.now_ms() + _CACHE_MS
