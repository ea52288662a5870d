"""The control plane's requests and responses, as values.

Owns: one frozen dataclass for each request that a producer makes and for its response, and how the
latter comes of Kafka's message (``protocol/messages/``): checked for sense, and holding nothing
that was not requested, so that what it takes is bounded by the request. Never: their bytes, the
meaning of an error code, what only the driver requests (``protocol/transaction_admin_messages.py``,
``protocol/fetch_messages.py``, ``protocol/admin_messages.py``), and the Produce request, which is
zero-copy (``protocol/produce.py``). Metadata's response is in ``metadata_response.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_sink.protocol.bodies import (
    ControlRequest,
    Message,
)
from spark_kafka_sink.protocol.messages import (
    metadata,
)
from spark_kafka_sink.protocol.metadata_response import MetadataResponse, read_metadata
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import WireReader


@dataclass(frozen=True, slots=True)
class MetadataRequest(ControlRequest[MetadataResponse]):
    """``topics`` empty requests the brokers only. All topics can't be requested: the request bounds
    the response, and so its memory. Brokers since 2.3 return the principal's operations on each
    topic (v8, KIP-430).
    """

    topics: tuple[str, ...]
    allow_auto_topic_creation: bool = True
    include_topic_authorized_operations: bool = False

    api_key = ApiKey.METADATA
    versions = VersionRange(4, 13)

    def message(self, version: int) -> Message:
        """Raises InvalidTopicError for a topic name that is too long even for the wire."""
        topic = metadata.MetadataRequestTopic
        return metadata.MetadataRequest(
            topics=[topic(name=name) for name in self.topics],
            allow_auto_topic_creation=self.allow_auto_topic_creation,
            include_topic_authorized_operations=(
                version >= 8 and self.include_topic_authorized_operations
            ),
        )

    def read(self, reader: WireReader, version: int) -> MetadataResponse:
        return read_metadata(reader, version, self.topics)
