"""Creates the login for the settings of a SASL mechanism.

:func:`new_login` chooses the class of the login. This module also keeps the fetchers that all
producers of a process share. The messages of a mechanism are in the mechanism's own module.
"""

from __future__ import annotations

import threading
from typing import Any

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.config.logins.oauth_settings import AwsLogin, OAuthSettings
from spark_kafka_sink.config.logins.sasl_settings import (
    KerberosSettings,
    SaslSettings,
    UserAndPassword,
)
from spark_kafka_sink.config.option_table import AWS_MSK_IAM, OAUTHBEARER, PLAIN
from spark_kafka_sink.network.auth.login import Fetcher, FetchingLogin, Login, StaticLogin
from spark_kafka_sink.network.auth.sasl_mechanism import SaslMechanism
from spark_kafka_sink.network.auth.sasl_plain import PlainMechanism
from spark_kafka_sink.network.auth.sasl_scram import ScramLogin

_BACKOFF = (100, 10_000)


#: The maximum number of fetchers in a process. No Spark job writes to so many clusters.
_MOST_SHARED = 8


def new_login(settings: SaslSettings, clock: Clock) -> Login:
    """Creates the login for the connections of one producer. Raises ConfigError if a required
    package is not installed.

    Producers of a process with the same settings share the fetched credentials. So a Spark worker
    that runs many tasks fetches one token for all of them.
    """
    if isinstance(settings.login, UserAndPassword):
        return _user(settings.mechanism, settings.login)
    if not isinstance(clock, SystemClock):
        return FetchingLogin(_new_fetcher(settings, clock))
    return FetchingLogin(_fetchers().get(settings, clock))


class _Fetchers:
    """The fetchers of this process. The key of a fetcher is its settings. If there are too many
    fetchers, the oldest fetcher is removed. ``_lock`` guards the fetchers.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[SaslSettings, Fetcher[Any]] = {}

    def get(self, settings: SaslSettings, clock: Clock) -> Fetcher[Any]:
        with self._lock:
            found = self._shared.get(settings)
        if found is not None:
            return found
        made = _new_fetcher(settings, clock)  # may run a user's code, so without the lock
        with self._lock:
            found = self._shared.setdefault(settings, made)
            while len(self._shared) > _MOST_SHARED:
                del self._shared[next(iter(self._shared))]
        return found


_fetchers = ProcessLocal(_Fetchers)


def _new_fetcher(settings: SaslSettings, clock: Clock) -> Fetcher[Any]:
    match settings.login:
        case OAuthSettings() as oauth:
            return _oauth(oauth, clock)
        case AwsLogin() as aws:
            return _aws(aws, clock)
    assert isinstance(settings.login, KerberosSettings), "a name and password need no fetcher"
    return _kerberos(settings.login, clock)


def _user(mechanism: str, user: UserAndPassword) -> Login:
    if mechanism == PLAIN:
        return StaticLogin(lambda: PlainMechanism(user.username, user.password))
    return ScramLogin(mechanism, user.username, user.password)


# Each import below is for a mechanism that most processes never use: it costs them nothing.


def _oauth(settings: OAuthSettings, clock: Clock) -> Fetcher[Any]:
    from spark_kafka_sink.network.auth.oauth_token import Token
    from spark_kafka_sink.network.auth.sasl_oauthbearer import OAuthBearerMechanism
    from spark_kafka_sink.network.auth.token_sources import token_fetcher

    backoff = ExponentialBackoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
    if isinstance(settings.source, AwsLogin):
        from spark_kafka_sink.network.auth.aws_msk_iam import HINT, Keys, keys_fetcher, msk_token

        def signed(keys: Keys, host: str) -> SaslMechanism:
            return OAuthBearerMechanism(msk_token(keys, host), HINT)

        fetch_keys = keys_fetcher(settings.source, clock)
        return Fetcher(OAUTHBEARER, fetch_keys, signed, clock, backoff=backoff)

    def bearing(token: Token, host: str) -> SaslMechanism:
        del host
        return OAuthBearerMechanism(token)

    fetch = token_fetcher(settings, clock)
    return Fetcher(OAUTHBEARER, fetch, bearing, clock, backoff=backoff)


def _aws(settings: AwsLogin, clock: Clock) -> Fetcher[Any]:
    from spark_kafka_sink.network.auth.aws_msk_iam import AwsMskIamMechanism, Keys, keys_fetcher

    def signed(keys: Keys, host: str) -> SaslMechanism:
        return AwsMskIamMechanism(keys, host)

    backoff = ExponentialBackoff(*_BACKOFF)
    fetch = keys_fetcher(settings, clock)
    return Fetcher(AWS_MSK_IAM, fetch, signed, clock, backoff=backoff)


def _kerberos(settings: KerberosSettings, clock: Clock) -> Fetcher[Any]:
    from spark_kafka_sink.network.auth.sasl_gssapi import gssapi_contexts

    fetch, make = gssapi_contexts(settings)
    backoff = ExponentialBackoff(*_BACKOFF)
    return Fetcher("GSSAPI", fetch, make, clock, backoff=backoff, per_host=True)
