"""The ``ssl.`` and ``sasl.`` options of Kafka's clients: what each means, and which count when.

Owns: their rows of the option table, and the rule by which ``security.protocol`` makes them count.
Never: a certificate, a connection.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.options import Importance, OneOf, Option, OptionType, Status

_T = OptionType
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

#: The note of every ``sasl.`` option that this version does not obey.
SASL_NOTE = "SASL comes in a later version"
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


def _later(type_: OptionType, names: str) -> Iterable[Option]:
    for name in names.split():
        yield Option(name, type_, None, _MEDIUM, "", None, Status.LATER_IGNORED, SASL_NOTE)


_STORE = OneOf(("PEM", "PKCS12", "JKS"))

SECURITY_OPTIONS = (
    Option("ssl.truststore.location", _T.STRING, None, _HIGH,
           "A file with the certificates to trust: PEM or PKCS12. It is read where the rows are"
           " written, so it must be on every executor. Without it and without"
           " `ssl.truststore.certificates` the system's CAs are trusted."),
    Option("ssl.truststore.type", _T.STRING, None, _MEDIUM,
           "PEM or PKCS12; without it the content tells. A JKS store is refused with the command"
           " that converts it.", _STORE),
    Option("ssl.truststore.password", _T.PASSWORD, None, _HIGH,
           "The password of a PKCS12 truststore."),
    Option("ssl.truststore.certificates", _T.PASSWORD, None, _HIGH,
           "The certificates to trust, as PEM text."),
    Option("ssl.keystore.location", _T.STRING, None, _HIGH,
           "A file with our private key and certificate chain, for brokers that want a client"
           " certificate: PEM or PKCS12."),
    Option("ssl.keystore.type", _T.STRING, None, _MEDIUM,
           "PEM or PKCS12; without it the content tells.", _STORE),
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
           " same CA read the rows."),
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
           None, Status.LATER_REFUSED, "give the ssl. options that the class stands for"),
    Option("sasl.mechanism", _T.STRING, None, _MEDIUM,
           "How to prove who we are, with SASL_PLAINTEXT and SASL_SSL: PLAIN, SCRAM-SHA-256 or"
           " SCRAM-SHA-512."),
    Option("sasl.jaas.config", _T.PASSWORD, None, _MEDIUM,
           "Who we are, as Kafka's Java client has it: a login module, `required`, and its options."
           " PlainLoginModule and ScramLoginModule are understood, with and without the"
           " `kafkashaded.` of Databricks."),
    Option("sasl.username", _T.PASSWORD, None, _MEDIUM,
           "The name for PLAIN and SCRAM, instead of `sasl.jaas.config`. Not an option of Java's"
           " client."),
    Option("sasl.password", _T.PASSWORD, None, _MEDIUM,
           "The password for PLAIN and SCRAM, instead of `sasl.jaas.config`. Not an option of"
           " Java's client."),
    *_later(_T.PASSWORD, """
        sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.client.credentials.client.secret"""),
    *_later(_T.CLASS, """
        sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
        sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class"""),
    *_later(_T.LIST, "sasl.oauthbearer.expected.audience"),
    *_later(_T.BOOLEAN, """
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.header.urlencode"""),
    *_later(_T.DOUBLE, """
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
        sasl.login.refresh.window.factor sasl.login.refresh.window.jitter"""),
    *_later(_T.SHORT, """
        sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds"""),
    *_later(_T.INT, """
        sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.clock.skew.seconds"""),
    *_later(_T.LONG, """
        sasl.kerberos.min.time.before.relogin sasl.login.retry.backoff.max.ms
        sasl.login.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"""),
    *_later(_T.STRING, """
        sasl.kerberos.kinit.cmd sasl.kerberos.service.name
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name
        sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url"""),
)  # fmt: skip


def is_security_option(name: str) -> bool:
    """An option of TLS or SASL, which counts only under some protocols."""
    return name.startswith(("ssl.", "sasl."))
