"""The ``ssl.`` and ``sasl.`` options of Kafka's clients: what each means, and which count when.

Owns: their rows of the option table, those of each login module's own options, and the rules by
which they count: ``security.protocol``, the mechanism, the store that goes with another one.
Never: a certificate, a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.password import text_of
from spark_kafka_sink.config.option import (
    AtLeast,
    Between,
    Importance,
    OneOf,
    OneOfAnyCase,
    Option,
    OptionType,
    Status,
)

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER: Final = "OAUTHBEARER"
AWS_MSK_IAM: Final = "AWS_MSK_IAM"
GSSAPI: Final = "GSSAPI"
#: Every supported mechanism.
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER, AWS_MSK_IAM, GSSAPI)

_T = OptionType
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

_JVM = "it chooses among Java's own TLS classes; here OpenSSL does that work"

#: The families of options that ``security.protocol`` makes count.
COUNTING = {
    "PLAINTEXT": (),
    "SSL": ("ssl.",),
    "SASL_PLAINTEXT": ("sasl.",),
    "SASL_SSL": ("ssl.", "sasl."),
}

#: Secrets that Spark's default ``spark.sql.redaction.options.regex`` (secret, password, token,
#: access key, in a name or a value) does not hide.
NOT_HIDDEN_BY_SPARK = (
    "ssl.keystore.key",
    "sasl.oauthbearer.assertion.private.key.passphrase",
)

#: Mechanisms that need TLS around them, and what happens without it.
IN_THE_CLEAR = {
    "PLAIN": "the password is sent in the clear",
    "OAUTHBEARER": "the token is sent in the clear, and anyone who reads it can use it until it"
    " expires",
    "AWS_MSK_IAM": "the signed request is sent in the clear, and anyone who reads it can use it"
    " until it expires",
}

_BY_NAME = (PLAIN, *SCRAM)
#: Options, by name or beginning, that some mechanisms ignore.
_OF_MECHANISMS = {
    "sasl.username": _BY_NAME,
    "sasl.password": (*_BY_NAME, OAUTHBEARER),
    "sasl.oauthbearer.": (OAUTHBEARER,),
    "sasl.kerberos.service.name": (GSSAPI,),
}


#: What OpenSSL offers in TLS 1.3 unless it is configured otherwise.
TLS_1_3_SUITES: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)


@dataclass(frozen=True, slots=True)
class PairRule:
    """Options of which one would not count: all of ``given`` together (a ``type=PEM`` only with
    that value), unless one of ``unless`` is there too. ``message`` is Java's where Java has one.
    """

    given: frozenset[str]
    unless: frozenset[str]
    message: str


def _rule(given: str, unless: str, message: str) -> PairRule:
    return PairRule(frozenset(given.split()), frozenset(unless.split()), message)


def check_rules(
    rules: tuple[PairRule, ...],
    values: Mapping[str, object],
    spelled: Callable[[str], str],
    where: str = "",
) -> None:
    """ConfigError for the first of ``rules`` that ``values`` break; an empty one is not given."""

    def holds(item: str) -> bool:
        name, _, wanted = item.partition("=")
        text = text_of(values.get(name))
        return text != "" and wanted.lower() in ("", text.lower())

    for rule in rules:
        if all(map(holds, rule.given)) and not any(map(holds, rule.unless)):
            names = [spelled(name) for name in sorted(rule.given)]
            needed = [spelled(name) for name in sorted(rule.unless)]
            raise ConfigError(
                where + rule.message,
                hint=f"set {' or '.join(needed)}, or remove {names[0]}"
                if needed
                else f"keep one of {' and '.join(names)}",
                kind=Kind.KEY_STORE if needed and not where else Kind.NO_EFFECT,
            )


STORE_RULES = (
    _rule("ssl.truststore.certificates ssl.truststore.location", "",
          "Both SSL trust store location and separate trust certificates are specified."),
    _rule("ssl.truststore.certificates ssl.truststore.password", "",
          "SSL trust store password cannot be specified for PEM format."),
    _rule("ssl.truststore.type=PEM ssl.truststore.password", "",
          "SSL trust store password cannot be specified for PEM format."),
    _rule("ssl.truststore.password", "ssl.truststore.location",
          "SSL trust store is not specified, but trust store password is specified."),
    _rule("ssl.truststore.type", "ssl.truststore.location ssl.truststore.certificates",
          "ssl.truststore.type is set, and there is no truststore"),
    _rule("ssl.keystore.key ssl.keystore.location", "",
          "Both SSL key store location and separate private key are specified."),
    _rule("ssl.keystore.certificate.chain ssl.keystore.location", "",
          "Both SSL key store location and separate certificate chain are specified."),
    _rule("ssl.keystore.key", "ssl.keystore.certificate.chain",
          "SSL private key is specified, but certificate chain is not specified."),
    _rule("ssl.keystore.certificate.chain", "ssl.keystore.key",
          "SSL certificate chain is specified, but private key is not specified"),
    _rule("ssl.keystore.key ssl.keystore.password", "",
          "SSL key store password cannot be specified with PEM format, only key password may be"
          " specified."),
    _rule("ssl.keystore.type=PEM ssl.keystore.password", "",
          "SSL key store password cannot be specified with PEM format, only key password may be"
          " specified."),
    _rule("ssl.keystore.password", "ssl.keystore.location",
          "SSL key store is not specified, but key store password is specified."),
    _rule("ssl.keystore.type", "ssl.keystore.location ssl.keystore.key",
          "ssl.keystore.type is set, and there is no keystore"),
    _rule("ssl.key.password", "ssl.keystore.location ssl.keystore.key",
          "ssl.key.password is set, and there is no private key that it could open"),
)  # fmt: skip

_ONE, _OFF = AtLeast(1), False
_STORE = OneOf(("PEM", "PKCS12", "JKS"))

SECURITY_OPTIONS = (
    Option("ssl.truststore.location", _T.STRING, None, _HIGH,
           "A file with the certificates to trust: PEM or PKCS12. It is read where the rows are"
           " written, so it must be on every executor. Without it and without"
           " `ssl.truststore.certificates` the system's CAs are trusted."),
    Option("ssl.truststore.type", _T.STRING, None, _MEDIUM,
           "PEM or PKCS12; the default is by content. A JKS store is rejected with the command"
           " that converts it.", _STORE),
    Option("ssl.truststore.password", _T.PASSWORD, None, _HIGH,
           "The password of a PKCS12 truststore."),
    Option("ssl.truststore.certificates", _T.PASSWORD, None, _HIGH,
           "The certificates to trust, as PEM text."),
    Option("ssl.keystore.location", _T.STRING, None, _HIGH,
           "A file with our private key and certificate chain, for brokers that require a client"
           " certificate: PEM or PKCS12."),
    Option("ssl.keystore.type", _T.STRING, None, _MEDIUM,
           "PEM or PKCS12; the default is by content.", _STORE),
    Option("ssl.keystore.password", _T.PASSWORD, None, _HIGH,
           "The password of a PKCS12 keystore."),
    Option("ssl.keystore.key", _T.PASSWORD, None, _HIGH,
           "Our private key, as PEM text (PKCS#8). In the sink only by reference,"
           " `${file:/path}` or `${env:NAME}`: Spark would show it."),
    Option("ssl.keystore.certificate.chain", _T.PASSWORD, None, _HIGH,
           "Our certificate, and those between it and the CA, as PEM text."),
    Option("ssl.key.password", _T.PASSWORD, None, _HIGH,
           "The password of an encrypted private key in PEM."),
    Option("ssl.endpoint.identification.algorithm", _T.STRING, "https", _LOW,
           "`https`: a broker's certificate must carry the name, or the address, that the broker"
           " advertises. Empty: any name is taken, which lets anyone with a certificate of the"
           " same CA read the rows. It takes no reference: an empty variable would mean that too.",
           OneOfAnyCase(("https",), empty="no check")),
    Option("ssl.enabled.protocols", _T.LIST, None, _MEDIUM,
           "The TLS versions to speak: TLSv1.2, TLSv1.3, or (the default) both. Older ones are"
           " never spoken."),
    Option("ssl.cipher.suites", _T.LIST, None, _LOW,
           "The cipher suites to offer, by Java's or OpenSSL's names. Those of TLS 1.3 can't be"
           " chosen one by one."),
    *(Option(name, _T.STRING, None, _LOW, "A choice among Java's TLS classes.", None,
             Status.NO_MEANING, _JVM)
      for name in ("ssl.protocol", "ssl.provider", "ssl.keymanager.algorithm",
                   "ssl.trustmanager.algorithm", "ssl.secure.random.implementation")),
    Option("ssl.engine.factory.class", _T.CLASS, None, _LOW, "A Java class that makes TLS engines.",
           None, Status.LATER_REFUSED, "set the ssl. options instead of the class"),
    Option("sasl.mechanism", _T.STRING, None, _MEDIUM,
           "The authentication mechanism for SASL_PLAINTEXT and SASL_SSL: PLAIN, SCRAM-SHA-256,"
           " SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM or GSSAPI.",
           OneOfAnyCase(MECHANISMS, empty="")),
    Option("sasl.jaas.config", _T.PASSWORD, None, _MEDIUM,
           "The credentials, as for the Java client: a login module, `required`, and its options."
           " PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule, IAMLoginModule and"
           " Krb5LoginModule are understood, with and without the `kafkashaded.` of Databricks."),
    Option("sasl.username", _T.PASSWORD, None, _MEDIUM,
           "The name for PLAIN and SCRAM, instead of `sasl.jaas.config`. Java's client does not"
           " have it."),
    Option("sasl.password", _T.PASSWORD, None, _MEDIUM,
           "The password for PLAIN and SCRAM, or a token for OAUTHBEARER, instead of"
           " `sasl.jaas.config`. Java's client does not have it."),
    Option("sasl.client.callback.handler.class", _T.CLASS, None, _MEDIUM,
           "A Java class that makes a mechanism's messages. Only IAMClientCallbackHandler is known,"
           " and nothing is needed for it; any other is an error."),
    Option("sasl.login.callback.handler.class", _T.CLASS, None, _MEDIUM,
           "Where OAUTHBEARER's token comes from: the import path of a Python class with a method"
           " `token()` ([security](security.md)). Of Java's classes,"
           " OAuthBearerLoginCallbackHandler and Strimzi's JaasClientOauthLoginCallbackHandler mean"
           " what the other options say, and IAMOAuthBearerLoginCallbackHandler a token signed for"
           " Amazon MSK."),
    Option("sasl.oauthbearer.jwt.retriever.class", _T.CLASS, None, _MEDIUM,
           "The same as `sasl.login.callback.handler.class`, by the name that Kafka 4.1 gave it."),
    Option("sasl.oauthbearer.token.endpoint.url", _T.STRING, None, _MEDIUM,
           "Where an identity provider gives tokens for client id and secret, by https; http is"
           " taken for this machine only. `file:/path` reads the token from a file, whenever one is"
           " needed."),
    Option("sasl.oauthbearer.client.credentials.client.id", _T.STRING, None, _MEDIUM,
           "The client's id at the token endpoint; or `clientId` in `sasl.jaas.config`."),
    Option("sasl.oauthbearer.client.credentials.client.secret", _T.PASSWORD, None, _MEDIUM,
           "The client's secret at the token endpoint; or `clientSecret` in `sasl.jaas.config`."),
    Option("sasl.oauthbearer.scope", _T.STRING, None, _MEDIUM,
           "What the token is asked for; or `scope` in `sasl.jaas.config`."),
    Option("sasl.oauthbearer.header.urlencode", _T.BOOLEAN, _OFF, _LOW,
           "URL-encode client id and secret before they go to the token endpoint, as RFC 6749 wants"
           " it and many providers don't."),
    Option("sasl.login.connect.timeout.ms", _T.INT, 10_000, _LOW,
           "How long connecting to the token endpoint may take.", _ONE, java_default="no limit",
           why="a connection waits for its token"),
    Option("sasl.login.read.timeout.ms", _T.INT, 10_000, _LOW,
           "How long the token endpoint may take to answer.", _ONE, java_default="no limit",
           why="a connection waits for its token"),
    Option("sasl.login.retry.backoff.ms", _T.LONG, 100, _LOW,
           "Pause after a token could not be fetched; each failure in a row doubles it.",
           _ONE),
    Option("sasl.login.retry.backoff.max.ms", _T.LONG, 10_000, _LOW,
           "The longest pause after a token could not be fetched.", _ONE),
    Option("sasl.login.refresh.window.factor", _T.DOUBLE, 0.8, _LOW,
           "The share of its life for which a token is used. After that, another one is fetched"
           " before it is used again.", Between(0.5, 1.0)),
    Option("sasl.login.refresh.window.jitter", _T.DOUBLE, 0.05, _LOW,
           "A random share, at most this, is added to it.", Between(0.0, 0.25)),
    Option("sasl.login.refresh.min.period.seconds", _T.SHORT, 60, _LOW,
           "Minimum time a token is used before it is refreshed.", Between(0, 900)),
    Option("sasl.login.refresh.buffer.seconds", _T.SHORT, 300, _LOW,
           "A token is not used in the last seconds of its life, unless it is too short for that.",
           Between(0, 3600)),
    Option("sasl.kerberos.service.name", _T.STRING, None, _MEDIUM,
           "The Kerberos principal under which brokers run; or `serviceName` in"
           " `sasl.jaas.config`."),
    *(Option(name, type_, None, _LOW, "When and how Java renews a Kerberos ticket.", None,
             Status.NO_MEANING, "the machine's Kerberos libraries and kinit do that")
      for name, type_ in (("sasl.kerberos.kinit.cmd", _T.STRING),
                          ("sasl.kerberos.min.time.before.relogin", _T.LONG),
                          ("sasl.kerberos.ticket.renew.jitter", _T.DOUBLE),
                          ("sasl.kerberos.ticket.renew.window.factor", _T.DOUBLE))),
    *(Option(name, type_, None, _LOW, "How Java's client looks at a token before it sends it.",
             None, Status.NO_MEANING, "only the broker can validate a token")
      for name, type_ in (("sasl.oauthbearer.jwt.validator.class", _T.CLASS),
                          ("sasl.oauthbearer.expected.audience", _T.LIST),
                          ("sasl.oauthbearer.expected.issuer", _T.STRING),
                          ("sasl.oauthbearer.clock.skew.seconds", _T.INT),
                          ("sasl.oauthbearer.scope.claim.name", _T.STRING),
                          ("sasl.oauthbearer.sub.claim.name", _T.STRING),
                          ("sasl.oauthbearer.jwks.endpoint.url", _T.STRING),
                          ("sasl.oauthbearer.jwks.endpoint.refresh.ms", _T.LONG),
                          ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _T.LONG),
                          ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _T.LONG))),
    Option("sasl.login.class", _T.CLASS, None, _LOW, "A Java class that logs in.", None,
           Status.LATER_REFUSED, "name where the token comes from:"
           " sasl.login.callback.handler.class"),
    *(Option(name, type_, None, _LOW,
             "A signed assertion in place of a client's secret (KIP-1258).", None,
             Status.LATER_REFUSED, "use client id and secret, or a class of your own in"
             " sasl.login.callback.handler.class")
      for name, type_ in (
          ("sasl.oauthbearer.assertion.algorithm", _T.STRING),
          ("sasl.oauthbearer.assertion.claim.aud", _T.STRING),
          ("sasl.oauthbearer.assertion.claim.exp.seconds", _T.INT),
          ("sasl.oauthbearer.assertion.claim.iss", _T.STRING),
          ("sasl.oauthbearer.assertion.claim.jti.include", _T.BOOLEAN),
          ("sasl.oauthbearer.assertion.claim.nbf.seconds", _T.INT),
          ("sasl.oauthbearer.assertion.claim.sub", _T.STRING),
          ("sasl.oauthbearer.assertion.file", _T.STRING),
          ("sasl.oauthbearer.assertion.private.key.file", _T.STRING),
          ("sasl.oauthbearer.assertion.private.key.passphrase", _T.PASSWORD),
          ("sasl.oauthbearer.assertion.template.file", _T.STRING))),
)  # fmt: skip


#: How the beginning of many options' names ends.
MANY: Final = ("_", ".")


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A class of ``sasl.jaas.config``: for which mechanisms, and its options, by their names. One
    that ends in ``_`` or ``.`` is the beginning of many. Those without meaning are taken without a
    word: they tune Java's own library.
    """

    mechanisms: tuple[str, ...]
    options: Mapping[str, Option]
    rules: tuple[PairRule, ...] = ()

    def find(self, name: str) -> Option | None:
        if name.endswith(MANY):
            return None
        beginnings = (b for b in self.options if b.endswith(MANY) and name.startswith(b))
        return self.options.get(next(beginnings, name))


def _of_module(
    names: str,
    type_: OptionType = _T.STRING,
    status: Status = Status.HONOURED,
    note: str = "",
) -> Iterator[Option]:
    return (Option(name, type_, None, _LOW, "", None, status, note) for name in names.split())


def _of_endpoint() -> Iterator[Option]:
    """The brokers' options of TLS for the token endpoint, which gets a secret: its name is always
    verified, and what would have no effect is refused.
    """
    for option in SECURITY_OPTIONS:
        for prefix in ("", "oauth.") if option.name.startswith("ssl.") else ():
            here = replace(option, name=prefix + option.name)
            if option.status is not Status.HONOURED:
                here = replace(here, status=Status.REFUSED)
            if option.name == "ssl.endpoint.identification.algorithm":
                here = replace(here, rule=OneOfAnyCase(("https",)))
            yield here


def _login_module(
    mechanisms: tuple[str, ...], *rows: Iterator[Option], rules: tuple[PairRule, ...] = ()
) -> LoginModule:
    return LoginModule(mechanisms, {o.name: o for row in rows for o in row}, rules)


_REFUSED, _UNUSED = Status.REFUSED, Status.NO_MEANING
_CLIENT = "use client credentials: oauth.client.id and oauth.client.secret"

#: By the class without its package. Names are Java's, letter by letter.
LOGIN_MODULES: Final[Mapping[str, LoginModule]] = {
    "PlainLoginModule": _login_module(
        (PLAIN,), _of_module("username"), _of_module("password", _T.PASSWORD)
    ),
    "ScramLoginModule": _login_module(
        SCRAM,
        _of_module("username"),
        _of_module("password", _T.PASSWORD),
        _of_module("tokenauth", _T.BOOLEAN),
    ),
    "OAuthBearerLoginModule": _login_module(
        (OAUTHBEARER,),
        _of_module("clientId scope extension_ oauth.client.id oauth.scope oauth.audience"),
        _of_module("oauth.token.endpoint.uri oauth.sasl.extension."),
        _of_module("clientSecret oauth.client.secret oauth.access.token", _T.PASSWORD),
        _of_module("unsecuredLoginStringClaim_ unsecuredLoginNumberClaim_"),
        _of_module("unsecuredLoginListClaim_ unsecuredLoginExtension_"),
        _of_module("unsecuredLoginLifetimeSeconds"),
        _of_endpoint(),
        _of_module("unsecuredLoginPrincipalClaimName unsecuredLoginScopeClaimName", status=_UNUSED),
        _of_module("oauth.username.claim oauth.fallback.username.claim", status=_UNUSED),
        _of_module("oauth.fallback.username.prefix oauth.username.prefix", status=_UNUSED),
        _of_module("oauth.config.id", status=_UNUSED),
        _of_module("oauth.access.token.is.jwt oauth.enable.metrics", _T.BOOLEAN, _UNUSED),
        _of_module("oauth.include.accept.header", _T.BOOLEAN, _UNUSED),
        _of_module("oauth.http.retries oauth.http.retry.pause.millis", _T.INT, _UNUSED),
        _of_module("oauth.connect.timeout.seconds", _T.INT, _REFUSED,
                   "set sasl.login.connect.timeout.ms"),
        _of_module("oauth.read.timeout.seconds", _T.INT, _REFUSED,
                   "set sasl.login.read.timeout.ms"),
        _of_module("oauth.max.token.expiry.seconds", _T.INT, _REFUSED,
                   "set sasl.login.refresh.window.factor, a share of a token's life"),
        _of_module("oauth.access.token.location", _T.STRING, _REFUSED,
                   "set sasl.oauthbearer.token.endpoint.url=file:/path"),
        _of_module("oauth.refresh.token oauth.password.grant.password"
                   " oauth.client.assertion", _T.PASSWORD, _REFUSED, _CLIENT),
        _of_module("oauth.refresh.token.location oauth.password.grant.username"
                   " oauth.client.assertion.location oauth.client.assertion.type"
                   " oauth.client.credentials.grant.type", _T.STRING, _REFUSED, _CLIENT),
    ),
    "IAMLoginModule": _login_module(
        (AWS_MSK_IAM,),
        _of_module("awsProfileName awsRoleArn awsRoleSessionName awsRoleExternalId awsStsRegion"),
        _of_module("awsCredentialsProvider"),
        _of_module("awsDebugCreds", _T.BOOLEAN, _UNUSED),
        _of_module("awsMaxRetries awsMaxBackOffTimeMs", _T.INT, _UNUSED),
        _of_module("awsRoleAccessKeyId awsRoleSecretAccessKey awsRoleSessionToken", _T.PASSWORD,
                   _REFUSED, "put the key into a profile and name it with awsProfileName"),
        rules=(
            _rule("awsCredentialsProvider awsProfileName", "",
                  "awsCredentialsProvider and awsProfileName are both set, and one of them would"
                  " not count"),
            *(_rule(name, "awsRoleArn", f"{name} would have no effect without awsRoleArn")
              for name in ("awsRoleSessionName", "awsRoleExternalId", "awsStsRegion")),
        ),
    ),
    "Krb5LoginModule": _login_module(
        (GSSAPI,),
        _of_module("serviceName principal keyTab"),
        _of_module("useKeyTab useTicketCache", _T.BOOLEAN),
        _of_module("storeKey renewTGT doNotPrompt isInitiator refreshKrb5Config debug useFirstPass"
                   " tryFirstPass storePass clearPass", _T.BOOLEAN, _UNUSED),
        # Java's module has neither; much copied configurations do, and Java ignores them.
        _of_module("renewTicket client", _T.BOOLEAN, _UNUSED),
        _of_module("ticketCache", _T.STRING, _REFUSED,
                   "set KRB5CCNAME in the environment of the driver and of each executor"),
        rules=(
            _rule("useKeyTab=true", "keyTab",
                  "useKeyTab is true, and keyTab is not set: the ticket of kinit would count"),
            _rule("keyTab useKeyTab=false", "",
                  "keyTab would have no effect, because useKeyTab is false"),
            _rule("keyTab", "principal",
                  "keyTab is set without principal: its first key would count"),
            _rule("useTicketCache=false", "keyTab",
                  "useTicketCache is false, and there is no keyTab to log in with"),
        ),
    ),
}  # fmt: skip


def is_security_option(name: str) -> bool:
    """An option of TLS or SASL, which counts only under some protocols."""
    return name.startswith(("ssl.", "sasl."))


def mechanisms_of(name: str) -> tuple[str, ...]:
    """The SASL mechanisms for which the option ``name`` counts."""
    for beginning, mechanisms in _OF_MECHANISMS.items():
        if name.startswith(beginning):
            return mechanisms
    return MECHANISMS
