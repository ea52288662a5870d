"""Whether the consumer group of ``offsetsGroup`` is used by consumers.

Owns: :func:`refuse_members`. Never: a commit of offsets (``transactions/offset_commits.py``).

Offsets that come with the data name no member, and brokers accept them for every group: of a group
with consumers they would move the position at which these continue after their next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_kafka_sink.admin.call import Call, CoordinatorKey, retry_code
from spark_kafka_sink.base.errors import ConfigError, ErrorCode, safe_text
from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.protocol.group_messages import ListGroupsRequest, ListGroupsResponse
from spark_kafka_sink.protocol.transaction_requests import CoordinatorType

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

#: How long a group without members is not asked for again, in ms.
_CACHE_MS: Final = 60_000

#: Until when, by the clients' clock, by cluster and group.
_checked: ProcessLocal[dict[tuple[tuple[tuple[str, int], ...], str], int]] = ProcessLocal(dict)


def refuse_members(client: TransactionClient, group_id: str) -> None:
    """ConfigError when the group has members, of whatever type; AuthorizationError names the
    missing right.
    """
    key = (client.config.bootstrap_servers, group_id)
    if _checked().get(key, 0) > client.clock.now_ms():
        return
    where = f"ListGroups for offsetsGroup '{safe_text(group_id)}'"

    def handle_response(response: ListGroupsResponse) -> ErrorCode | None:
        return retry_code(response.error, where, "READ on the group")

    to = CoordinatorKey(group_id, CoordinatorType.GROUP)
    call = Call(ListGroupsRequest(group_id), to, handle_response)
    found = client.loop.send_and_receive(call, client.deadline(), where).groups.get(group_id)
    if found is not None:
        of_type = f"{safe_text(found.type)} " if found.type else ""
        raise ConfigError(
            f"offsetsGroup '{safe_text(group_id)}' is a {of_type}group with members (state "
            f"{safe_text(found.state)}): their position would be overwritten",
            hint="choose a group that no consumer uses, or stop the consumers; "
            "offsetsGroupInUse=allow commits its offsets nevertheless",
        )
    _checked()[key] = client.clock.now_ms() + _CACHE_MS
