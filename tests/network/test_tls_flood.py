"""A server that floods its clients with TLS messages, against a whole producer."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from threading import Event

import pytest
import trustme

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.base.errors import KafkaTimeoutError
from tests.network.loopback import PATIENCE, Background, LoopbackServer
from tests.network.tls_messages import HELLO_REQUEST

#: What one ``sendall`` sends: 63 kB, at the speed of the loopback, without the interpreter's lock.
BLOCK = HELLO_REQUEST * 7_000


class Flood:
    """Answers each ClientHello with HelloRequests until the client hangs up or the test is over."""

    def __init__(self, server: LoopbackServer) -> None:
        self.server = server
        self.over, self.hung_up = Event(), Event()
        self.sent = 0

    def run(self) -> None:
        self.server.listener.settimeout(0.1)
        while not self.over.is_set():
            try:
                connection = self.server.accept()
                connection.recv(65536)
                while not self.over.is_set():
                    connection.sendall(BLOCK)
                    self.sent += len(BLOCK)
            except TimeoutError:
                continue
            except OSError:
                self.hung_up.set()


@pytest.fixture
def flood() -> Iterator[Flood]:
    with LoopbackServer() as server:
        found = Flood(server)
        with Background(found.run):
            yield found
            found.over.set()


def test_a_producer_leaves_a_server_that_floods_the_handshake(flood: Flood) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    host, port = flood.server.address
    producer = KafkaProducer(
        {
            "bootstrap.servers": f"{host}:{port}",
            "security.protocol": "SSL",
            "ssl.truststore.certificates": trustme.CA().cert_pem.bytes().decode(),
            "max.block.ms": "500",
            "reconnect.backoff.ms": "200",
        }
    )
    try:
        with pytest.raises(KafkaTimeoutError):
            producer.partitions_for("t")
        assert flood.hung_up.wait(PATIENCE)
        with pytest.raises(KafkaTimeoutError, match="TLS messages without any data"):
            producer.partitions_for("t")
    finally:
        producer.close(1_000)
    assert flood.sent
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
