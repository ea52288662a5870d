"""Which login a mechanism's settings make. Owns: :func:`new_login`. Never: a message."""

from __future__ import annotations

from spark_kafka_sink.network.login import Login, StaticLogin
from spark_kafka_sink.network.sasl_plain import PlainMechanism
from spark_kafka_sink.network.sasl_scram import ScramMechanism
from spark_kafka_sink.sasl_settings import PLAIN, SaslSettings


def new_login(settings: SaslSettings) -> Login:
    """The login of one producer's connections."""
    user = settings.user
    assert user is not None
    if settings.mechanism == PLAIN:
        return StaticLogin(lambda: PlainMechanism(user.username, user.password))
    return StaticLogin(lambda: ScramMechanism(settings.mechanism, user.username, user.password))
