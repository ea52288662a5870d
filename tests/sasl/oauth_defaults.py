"""Settings of OAUTHBEARER as the options' defaults have them."""

from __future__ import annotations

from spark_kafka_sink.config.logins.oauth_settings import OAuthSettings, RefreshRule, TokenSource

RULE = RefreshRule(0.8, 0.05, 60, 300)


def settings_of(source: TokenSource) -> OAuthSettings:
    return OAuthSettings(source, (), RULE, 100, 10_000)
