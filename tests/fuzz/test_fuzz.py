"""The share of ``make fuzz`` that every run of the tests has: the same seeds each time."""

from __future__ import annotations

import pkgutil
import random

import pytest

from spark_kafka_sink.protocol import messages
from spark_kafka_sink.protocol.request import ApiKey
from tests.fuzz.answers import OF_ONE, REQUESTS
from tests.fuzz.targets import TARGETS, attempt

#: Cases of each target: about a second or two.
CASES = {
    "answers": 2000,
    "batches": 2500,
    "streams": 2000,
    "states": 2500,
    "exchanges": 2000,
    "texts": 1500,
    "tls": 600,
}
#: What must become of some of them: fuzz that is refused at the door finds nothing behind it.
REACHED = {
    "answers": {
        "refused",
        "ApiVersionsRequest taken",
        "InitProducerIdRequest taken",
        "MetadataRequest taken",
        "SaslAuthenticateRequest taken",
        *(f"{type(request).__name__} taken" for request, _ in OF_ONE),
    },
    "batches": {"read", "unreadable", "read, unreadable", "nothing there"},
    "streams": {
        f"{name} {end}"
        for name in ("GZIP", "LZ4", "SNAPPY", "ZSTD")
        for end in ("damaged", "unpacked")
    },
    "states": {"decoded, joined", "decoded, not whole", "refused, joined", "refused, not whole"},
    "exchanges": {
        "AWS_MSK_IAM authenticated",
        "OAUTHBEARER authenticated",
        "PLAIN authenticated",
        "PLAIN RemoteProtocolError",
        "SCRAM-SHA-256 AuthenticationError",
        "SCRAM-SHA-256 ConnectionError",
    },
    "texts": {"read, a time or none", "refused, a time or none"},
    "tls": {
        "a handshake: AuthenticationError",
        "a session: AuthenticationError",
        "a session: ConnectionError",
    },
}


@pytest.mark.parametrize("name", TARGETS)
def test_random_bytes_break_no_promise(name: str) -> None:
    outcomes = {attempt(name, seed) for seed in range(CASES[name])}
    assert not REACHED[name] - outcomes


def test_every_decoder_of_kafkas_messages_is_fuzzed() -> None:
    """By enumeration: a new module of ``protocol/messages/`` has a request that ``answers`` knows,
    or this fails.
    """
    generated = {info.name for info in pkgutil.iter_modules(messages.__path__)}
    fuzzed = {request.api_key.name.lower() for request in REQUESTS}
    assert generated - {"flexible_versions"} == fuzzed - {"produce"}
    ends = {r.versions.max for r in REQUESTS if r.api_key is ApiKey.END_TXN}
    assert ends == {4, 5}, "the versions depend on the transaction's"


def test_a_failure_says_how_it_is_seen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(rng: random.Random) -> str:
        assert rng.random() < 0.9
        return ""

    monkeypatch.setitem(TARGETS, "batches", broken)

    def fuzz() -> None:
        for seed in range(1000):
            attempt("batches", seed)

    with pytest.raises(AssertionError) as failure:
        fuzz()
    (note,) = failure.value.__notes__
    assert note.startswith("again: make fuzz ONLY=batches FROM=")
    with pytest.raises(AssertionError):
        attempt("batches", int(note.split("FROM=")[1].split()[0]))
