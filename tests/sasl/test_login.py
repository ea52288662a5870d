"""Login: credentials are fetched beside the network thread, kept, renewed, and shared."""

from __future__ import annotations

import logging
import threading

import pytest

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.network.auth import login as login_module
from spark_kafka_sink.network.auth.login import FetchedCredential, Fetcher, FetchingLogin
from tests.fakes.clock import FakeClock

SECRET = "s3cr3t"


class Scripted:
    """A fetch whose results the test gives one by one."""

    def __init__(self, *results):
        self.results = list(results)
        self.calls = []

    def __call__(self, host):
        self.calls.append(host)
        result = self.results.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result


class Woken:
    def __init__(self):
        self.event = threading.Event()

    def __call__(self):
        self.event.set()

    def wait(self):
        assert self.event.wait(60)
        self.event.clear()


def login_of(fetch, clock, **more):
    backoff = ExponentialBackoff(100, 10_000, jitter=0)
    made = Fetcher("TEST", fetch, lambda value, host: (value, host), clock, backoff=backoff, **more)
    login, woken = FetchingLogin(made), Woken()
    login.attach(woken)
    return login, woken


def fetched(login, woken, now, host="h"):
    """There is none for ``host``, and its fetch has come to an end."""
    assert login.mechanism(host, now) is None
    woken.wait()


def test_a_credential_is_fetched_in_background_and_cached():
    clock = FakeClock()
    fetch = Scripted(*(FetchedCredential(one, 5_000, 9_000) for one in "ab"))
    login, woken = login_of(fetch, clock)
    now = clock.now_ms()
    fetched(login, woken, now)
    assert login.mechanism("h", now) == ("a", "h")
    assert login.mechanism("i", now + 4_999) == ("a", "i")
    assert len(fetch.calls) == 1
    fetched(login, woken, now + 5_000)
    assert login.mechanism("h", now) == ("b", "h")


def test_many_who_wait_cause_one_fetch():
    gate = threading.Event()
    fetch = Scripted(FetchedCredential("a", 0))

    def slow(host):
        gate.wait(60)
        return fetch(host)

    clock = FakeClock()
    login, woken = login_of(slow, clock)
    for host in "abc":
        assert login.mechanism(host, clock.now_ms()) is None
    gate.set()
    woken.wait()
    for host in "abc":  # of no kept life, and yet of use to all who waited
        assert login.mechanism(host, clock.now_ms()) == ("a", host)
    assert len(fetch.calls) == 1


def test_each_host_has_its_own_where_that_is_asked_for():
    fetch = Scripted(FetchedCredential("a", 9_000), FetchedCredential("b", 9_000))
    login, woken = login_of(fetch, FakeClock(), per_host=True)
    for host in ("h", "i"):
        fetched(login, woken, 0, host)
    assert [login.mechanism(host, 0) for host in ("h", "i")] == [("a", "h"), ("b", "i")]
    assert fetch.calls == ["h", "i"]


def test_a_failed_renewal_uses_the_old_credential_until_it_ends(caplog):
    failure = OSError("the server is busy")
    clock = FakeClock()
    now = clock.now_ms()
    fetch = Scripted(
        FetchedCredential("a", 1_000, 60_000), failure, failure, FetchedCredential("c", 9_000)
    )
    login, woken = login_of(fetch, clock)
    fetched(login, woken, now)
    now += 2_000
    clock.advance(2_000)
    assert login.mechanism("h", now) is None
    with caplog.at_level(logging.WARNING):
        woken.wait()
    assert "the server is busy" in caplog.text
    assert login.mechanism("h", now) == ("a", "h"), "it has not expired"
    clock.advance(60_000)
    now += 60_000
    fetched(login, woken, now)
    for _ in range(3):
        with pytest.raises(ConnectionError, match="the server is busy"):
            login.mechanism("h", now)
    assert len(fetch.calls) == 3, "an answer is everybody's for a while"
    now = clock.advance(20_000)
    fetched(login, woken, now)
    assert login.mechanism("h", now) == ("c", "h")


def test_a_slow_renewal_delays_nobody_while_the_old_one_is_valid():
    gate, clock = threading.Event(), FakeClock()
    fetch = Scripted(FetchedCredential("a", 10_000, 100_000), FetchedCredential("b", 10_000))

    def slow(host):
        if fetch.calls:
            gate.wait(60)
        return fetch(host)

    login, woken = login_of(slow, clock)
    fetched(login, woken, clock.now_ms())
    now = clock.advance(10_000)
    for host in "hij":  # the first one begins the renewal
        assert login.mechanism(host, now) == ("a", host)
    now = clock.advance(30_000)
    assert login.mechanism("h", now) == ("a", "h"), "it is valid for a minute"
    assert login.mechanism("h", clock.advance(1)) is None
    gate.set()
    woken.wait()
    assert login.mechanism("h", clock.now_ms()) == ("b", "h")
    assert len(fetch.calls) == 2


def test_a_credential_of_unknown_life_waits_for_its_renewal():
    clock = FakeClock()
    login, woken = login_of(Scripted(*(FetchedCredential(one, 1_000) for one in "ab")), clock)
    fetched(login, woken, clock.now_ms())
    fetched(login, woken, clock.advance(1_000))
    assert login.mechanism("h", clock.now_ms()) == ("b", "h")


def test_the_pause_after_a_failure_doubles_until_a_success():
    clock = FakeClock()
    renewed = FetchedCredential("a", 1_000, 2_000)
    fetch = Scripted(OSError("1"), OSError("2"), renewed, OSError("3"), OSError("4"))
    login, woken = login_of(fetch, clock)
    for pause in (100, 200):
        fetched(login, woken, clock.now_ms())
        with pytest.raises(ConnectionError):
            login.mechanism("h", clock.advance(pause - 1))
        clock.advance(1)
    fetched(login, woken, clock.now_ms())
    fetched(login, woken, clock.advance(3_000))
    with pytest.raises(ConnectionError):
        login.mechanism("h", clock.advance(99))
    fetched(login, woken, clock.advance(1))


def test_what_can_not_pass_is_an_authentication_error_for_all():
    """Each has one of its own: a kept one keeps no frames, and so no secrets."""
    cases = [
        (AuthenticationError("no", hint="h"), "no"),
        (ConfigError("bad"), "bad"),
        (ValueError(SECRET), "fetching the credential failed: ValueError"),
        (SystemExit(SECRET), "fetching the credential failed: SystemExit"),
        (KeyboardInterrupt(SECRET), "fetching the credential failed: KeyboardInterrupt"),
    ]
    for failure, words in cases:
        login, woken = login_of(Scripted(failure), FakeClock())
        fetched(login, woken, 0)
        errors = []
        for _ in range(2):
            with pytest.raises(AuthenticationError, match=words) as raised:
                login.mechanism("h", 0)
            errors.append(raised.value)
        assert SECRET not in str(errors[0])
        assert errors[0] is not errors[1]
        assert errors[0].__cause__ is errors[0].__context__ is None


def test_a_fetch_without_an_end_is_given_up_for_another():
    begun, gate, clock = threading.Event(), threading.Event(), FakeClock()
    fetch = Scripted(FetchedCredential("b", 9_000))

    def stuck_once(host):
        if not begun.is_set():
            begun.set()
            gate.wait(60)
            return FetchedCredential("a", 9_000)
        return fetch(host)

    login, woken = login_of(stuck_once, clock)
    assert login.mechanism("h", clock.now_ms()) is None
    assert begun.wait(60)
    clock.advance(119_000)
    assert login.mechanism("h", clock.now_ms()) is None
    clock.advance(2_000)
    fetched(login, woken, clock.now_ms())
    assert login.mechanism("h", clock.now_ms()) == ("b", "h")
    gate.set()  # the first is not needed any more


def test_who_has_closed_is_not_woken():
    gate, done = threading.Event(), threading.Event()

    def slow(host):
        gate.wait(60)
        return FetchedCredential("a", 0)

    login, woken = login_of(slow, FakeClock())
    other = FetchingLogin(login._fetcher)
    other.attach(done.set)
    assert login.mechanism("h", 0) is None
    login.close()
    gate.set()
    assert done.wait(60)
    assert not woken.event.is_set()


def test_credentials_of_hosts_are_bounded(monkeypatch):
    """Brokers come and go for months; the one that came first is fetched again."""
    monkeypatch.setattr(login_module, "_MOST_CACHED", 2)
    fetch = Scripted(*(FetchedCredential(one, 9_000) for one in "abcd"))
    login, woken = login_of(fetch, FakeClock(), per_host=True)
    for host in ("h", "i", "j"):
        fetched(login, woken, 0, host)
    assert [login.mechanism(host, 0) for host in ("i", "j")] == [("b", "i"), ("c", "j")]
    fetched(login, woken, 0, "h")
    assert login.mechanism("h", 0) == ("d", "h")


def test_a_login_may_be_closed_before_it_is_attached():
    """A producer that can't be made closes what it has."""
    fetch = Scripted()
    backoff = ExponentialBackoff(100, 10_000, jitter=0)
    made = Fetcher("TEST", fetch, lambda value, host: value, FakeClock(), backoff=backoff)
    never_called = Woken()
    made.remove_wakeup(never_called)
    FetchingLogin(made).close()
