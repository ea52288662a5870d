"""Hints of logins, TLS, schemas and other options, and the options after each is followed: data.

A row is the options that raise, the error's code, words of its hint, and for each way that the hint
names the options that are given then: beside the others, in place of one, or None to remove one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Changes = Mapping[str, str | None]
Row = tuple[Changes, str, str, Sequence[Changes]]


def module(name: str, options: str = "") -> str:
    return f"org.apache.kafka.common.security.x.{name} required {options};"


JAAS = "kafka.sasl.jaas.config"
MECHANISM = "kafka.sasl.mechanism"
USER, PASSWORD = "kafka.sasl.username", "kafka.sasl.password"
SERVICE = "kafka.sasl.kerberos.service.name"
URL = "kafka.sasl.oauthbearer.token.endpoint.url"
ID = "kafka.sasl.oauthbearer.client.credentials.client.id"
SECRET = "kafka.sasl.oauthbearer.client.credentials.client.secret"
CLIENT_HANDLER = "kafka.sasl.client.callback.handler.class"
LOGIN_HANDLER = "kafka.sasl.login.callback.handler.class"
IAM = "software.amazon.msk.auth.iam."
STRIMZI = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"

SASL = {"kafka.security.protocol": "SASL_SSL"}
PLAIN = SASL | {MECHANISM: "PLAIN"}
NAMED = {USER: "u", PASSWORD: "${env:SECRET}"}
OAUTH = SASL | {MECHANISM: "OAUTHBEARER"}
CLIENT = {URL: "https://idp/token", ID: "i", SECRET: "${env:SECRET}"}
FROM_FILE = OAUTH | {URL: "file:/token"}
IN_MODULE = 'username="u" password="p"'
OF_CLIENT = 'clientId="i" clientSecret="s"'

LOGINS: list[Row] = [
    (SASL | NAMED, "KP0130", "set it to PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512",
     [{MECHANISM: "PLAIN"}, {MECHANISM: "SCRAM-SHA-256"}, {MECHANISM: "SCRAM-SHA-512"}]),
    (SASL | {JAAS: module("ScramLoginModule", IN_MODULE)}, "KP0130",
     "set it to SCRAM-SHA-256 or SCRAM-SHA-512",
     [{MECHANISM: "SCRAM-SHA-256"}, {MECHANISM: "SCRAM-SHA-512"}]),
    (PLAIN | {JAAS: module("PlainLogin", IN_MODULE)}, "KP0131", "known are PlainLoginModule",
     [{JAAS: module("PlainLoginModule", IN_MODULE)}]),
    (PLAIN | {JAAS: module("ScramLoginModule", IN_MODULE)}, "KP0131",
     "a ScramLoginModule goes with SCRAM-SHA-256 or SCRAM-SHA-512",
     [{MECHANISM: "SCRAM-SHA-256"}, {MECHANISM: "SCRAM-SHA-512"}]),
    (PLAIN | NAMED | {CLIENT_HANDLER: "com.example.Handler"}, "KP0130", "leave it out; known here",
     [{CLIENT_HANDLER: None}]),
    (SASL | {MECHANISM: "AWS_MSK_IAM", CLIENT_HANDLER: "com.example.Handler"}, "KP0130",
     f"known here are {IAM}IAMClientCallbackHandler for AWS_MSK_IAM",
     [{CLIENT_HANDLER: f"{IAM}IAMClientCallbackHandler"}]),
    (PLAIN | NAMED | {LOGIN_HANDLER: "com.example.Handler"}, "KP0130", "leave it out",
     [{LOGIN_HANDLER: None}]),
    (PLAIN | NAMED | {JAAS: module("PlainLoginModule", IN_MODULE)}, "KP0130",
     "keep kafka.sasl.jaas.config, or kafka.sasl.username and kafka.sasl.password",
     [{USER: None, PASSWORD: None}, {JAAS: None}]),
    (SASL | {MECHANISM: "SCRAM-SHA-256",
             JAAS: module("ScramLoginModule", f"{IN_MODULE} tokenauth=true")},
     "KP0130", "use the user's own SCRAM credential",
     [{JAAS: module("ScramLoginModule", IN_MODULE)}]),
    (PLAIN | {JAAS: module("PlainLoginModule", 'username="u"')}, "KP0131",
     'in a login module they are username="..." password="..."',
     [{JAAS: module("PlainLoginModule", IN_MODULE)}]),
    (PLAIN | {JAAS: module("PlainLoginModule", f'{IN_MODULE} user="x"')}, "KP0131",
     "it has username, password", [{JAAS: module("PlainLoginModule", IN_MODULE)}]),
    (SASL | {MECHANISM: "AWS_MSK_IAM", JAAS: module("IAMLoginModule", 'awsProfil="x"')}, "KP0131",
     "did you mean awsProfileName?",
     [{JAAS: module("IAMLoginModule", 'awsProfileName="x"')}]),
    (PLAIN | {JAAS: f"PlainLoginModule {IN_MODULE}"}, "KP0131",
     'it looks like: org.example.SomeLoginModule required username="..."',
     [{JAAS: f"org.example.PlainLoginModule required {IN_MODULE};"}]),
    (SASL | {MECHANISM: "GSSAPI"}, "KP0130", f"set {SERVICE} to the brokers' service",
     [{SERVICE: "kafka"}]),
    (PLAIN | NAMED | {SERVICE: "kafka"}, "KP0107",
     "the option is for GSSAPI; remove it, or set kafka.sasl.mechanism",
     [{SERVICE: None}, {MECHANISM: "GSSAPI", USER: None, PASSWORD: None}]),
    (OAUTH | {LOGIN_HANDLER: "my.tokens:Source", JAAS: module("OAuthBearerLoginModule", 'x="y"')},
     "KP0122", 'give a reference, x="${file:/path/to/it}" or "${env:NAME}"',
     [{JAAS: module("OAuthBearerLoginModule", 'x="${file:/path/to/it}"')},
      {JAAS: module("OAuthBearerLoginModule", 'x="${env:NAME}"')}]),
]  # fmt: skip

TOKENS: list[Row] = [
    (OAUTH | {USER: "u"} | CLIENT, "KP0107",
     "the option is for PLAIN and SCRAM-SHA-256 and SCRAM-SHA-512", [{USER: None}]),
    (FROM_FILE | {PASSWORD: "${env:SECRET}"}, "KP0132", "keep one of them",
     [{PASSWORD: None}, {URL: None}]),
    (OAUTH, "KP0132", f"set {URL}, {LOGIN_HANDLER}, or {PASSWORD} to the token",
     [CLIENT, {LOGIN_HANDLER: "my.tokens:Source"}, {PASSWORD: "${env:SECRET}"}]),
    (OAUTH | {LOGIN_HANDLER: "Source"}, "KP0132",
     "token() as package.module:Name; known of Java's are software.amazon.msk.auth.iam.IAMOAuth",
     [{LOGIN_HANDLER: "package.module:Name"},
      {LOGIN_HANDLER: f"{IAM}IAMOAuthBearerLoginCallbackHandler"},
      {LOGIN_HANDLER: STRIMZI} | CLIENT]),
    (OAUTH | CLIENT | {ID: "", SECRET: ""}, "KP0132", "or clientId and clientSecret in",
     [CLIENT, {JAAS: module("OAuthBearerLoginModule", OF_CLIENT)}]),
    (OAUTH | CLIENT | {JAAS: module("OAuthBearerLoginModule", 'clientId="other"')}, "KP0132",
     f"keep {ID}; the others are in kafka.sasl.jaas.config", [{JAAS: None}]),
    (OAUTH | {URL: "file:/token?x#y"}, "KP0132", "write '?' and '#' of a file's name as %3F and",
     [{URL: "file:/token%3Fx%23y"}]),
    (OAUTH | {URL: "idp/token"}, "KP0132", "https://host/path, or file:/path",
     [{URL: "file:/path"}, CLIENT]),
    (FROM_FILE | {ID: "i"}, "KP0107", "remove it: it is for a token from another place",
     [{ID: None}]),
    (OAUTH | CLIENT | {JAAS: module("OAuthBearerLoginModule",
                                    'extension_a="1" unsecuredLoginExtension_a="2"')},
     "KP0107", "keep one of them",
     [{JAAS: module("OAuthBearerLoginModule", 'extension_a="1"')}]),
    (OAUTH | CLIENT | {JAAS: module("OAuthBearerLoginModule", 'extension_a1="1"')}, "KP0132",
     "its name is letters", [{JAAS: module("OAuthBearerLoginModule", 'extension_ab="1"')}]),
]  # fmt: skip

TLS = {"kafka.security.protocol": "SSL"}
TRUSTED = {"kafka.ssl.truststore.location": "/t"}
OWN = {"kafka.ssl.keystore.location": "/k"}
STORES: list[Row] = [
    (TLS | TRUSTED | {"kafka.ssl.truststore.certificates": "pem"}, "KP0107",
     "keep one of kafka.ssl.truststore.certificates and kafka.ssl.truststore.location",
     [{"kafka.ssl.truststore.certificates": None}, {"kafka.ssl.truststore.location": None}]),
    (TLS | TRUSTED | {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.password": "p"},
     "KP0107", "keep one of kafka.ssl.truststore.password and kafka.ssl.truststore.type=PEM",
     [{"kafka.ssl.truststore.password": None}, {"kafka.ssl.truststore.type": None}]),
    (TLS | {"kafka.ssl.truststore.password": "p"}, "KP0121",
     "set kafka.ssl.truststore.location, or remove kafka.ssl.truststore.password",
     [TRUSTED, {"kafka.ssl.truststore.password": None}]),
    (TLS | {"kafka.ssl.truststore.type": "PEM"}, "KP0121",
     "set kafka.ssl.truststore.certificates or kafka.ssl.truststore.location, or remove",
     [TRUSTED, {"kafka.ssl.truststore.certificates": "pem"}, {"kafka.ssl.truststore.type": None}]),
    (TLS | {"kafka.ssl.keystore.password": "p"}, "KP0121",
     "set kafka.ssl.keystore.location, or remove kafka.ssl.keystore.password",
     [OWN, {"kafka.ssl.keystore.password": None}]),
    (TLS | {"kafka.ssl.keystore.key": "${env:SECRET}"}, "KP0121",
     "set kafka.ssl.keystore.certificate.chain, or remove kafka.ssl.keystore.key",
     [{"kafka.ssl.keystore.certificate.chain": "pem"}, {"kafka.ssl.keystore.key": None}]),
    (TLS | {"kafka.ssl.key.password": "p"}, "KP0121", "or remove kafka.ssl.key.password",
     [OWN, {"kafka.ssl.key.password": None}]),
    (TLS | {"kafka.ssl.keystore.key": "inline", "kafka.ssl.keystore.certificate.chain": "pem"},
     "KP0122", "give a reference, kafka.ssl.keystore.key=${file:/path/to/it} or ${env:NAME}, or",
     [{"kafka.ssl.keystore.key": "${env:SECRET}"},
      OWN | {"kafka.ssl.keystore.key": None, "kafka.ssl.keystore.certificate.chain": None}]),
]  # fmt: skip

REGISTRY = "schema.registry.url"
AVRO = {"valueColumns": "*", "valueFormat": "avro"}
ASKED = AVRO | {REGISTRY: "https://host:8081"}
SOURCE = "bearer.auth.credentials.source"
TOKEN_URL, CLIENT_ID, CLIENT_SECRET = (
    "bearer.auth.issuer.endpoint.url", "bearer.auth.client.id", "bearer.auth.client.secret"
)  # fmt: skip

SCHEMAS: list[Row] = [
    (AVRO, "KP0100", "set schema.registry.url=https://host:8081; valueFormat=json needs none",
     [{REGISTRY: "https://host:8081"}, {"valueFormat": "json"}]),
    ({"valueSchema": "{}"}, "KP0107", "set valueFormat=avro (or protobuf, json-schema) and",
     [ASKED, ASKED | {"valueFormat": "protobuf"}, ASKED | {"valueFormat": "json-schema"},
      {"valueSchema": None}]),
    ({"keyColumns": "k", "keySchemaName": "K"}, "KP0107", "set keyFormat=avro",
     [{"keyFormat": "avro", REGISTRY: "https://host"}, {"keySchemaName": None}]),
    ({REGISTRY: "https://host"}, "KP0107", "and valueColumns, or remove schema.registry.url",
     [ASKED, {REGISTRY: None}]),
    (ASKED | {"use.schema.id": "1", "valueSchema": "{}"}, "KP0107", "keep one of them",
     [{"use.schema.id": None}, {"valueSchema": None}]),
    (ASKED | {"schemaTopics": "a,b"}, "KP0107", "remove it: it lists what a column topic may name",
     [{"schemaTopics": None}]),
    (ASKED | {"topic": "", "schemaTopics": "a b"}, "KP0103", "letters, digits, '.', '_' and '-'",
     [{"schemaTopics": "a.b_c-1", "topic": None}]),
    (ASKED | {SOURCE: "STATIC_TOKEN"}, "KP0100", "set bearer.auth.token",
     [{"bearer.auth.token": "${env:SECRET}"}]),
    (ASKED | {SOURCE: "OAUTHBEARER"}, "KP0100", f"set {TOKEN_URL}",
     [{TOKEN_URL: "https://idp/token", CLIENT_ID: "i", CLIENT_SECRET: "${env:SECRET}"}]),
    (ASKED | {CLIENT_ID: "i"}, "KP0100", f"{TOKEN_URL} is missing",
     [{TOKEN_URL: "https://idp/token", CLIENT_SECRET: "${env:SECRET}"}]),
    (ASKED | {TOKEN_URL: "https://idp/token", CLIENT_ID: "i"}, "KP0100",
     f"{CLIENT_SECRET} is missing", [{CLIENT_SECRET: "${env:SECRET}"}]),
    (ASKED | {"basic.auth.user.info": "u:p"}, "KP0122",
     "give a reference, basic.auth.user.info=${file:/path/to/it} or ${env:NAME}, or put",
     [{"basic.auth.user.info": "${env:SECRET}"}, {"basic.auth.user.info": "${file:/run/it}"}]),
    (ASKED | {REGISTRY: "host:8081"}, "KP0103", "it looks like https://host:8081",
     [{REGISTRY: "https://host:8081"}, {REGISTRY: "https://a:8081,https://b:8081"}]),
    (ASKED | {REGISTRY: "https://u:p@host:8081"}, "KP0103", "they go to basic.auth.user.info",
     [{REGISTRY: "https://host:8081", "basic.auth.user.info": "${env:SECRET}"}]),
    (ASKED | {REGISTRY: "http://host", "bearer.auth.token": "${env:SECRET}"}, "KP0103",
     "use https", [{REGISTRY: "https://host"}]),
    (ASKED | {REGISTRY: "http://host", "schema.registry.ssl.truststore.location": "/t"}, "KP0107",
     "use https, or remove it",
     [{REGISTRY: "https://host"}, {"schema.registry.ssl.truststore.location": None}]),
    (ASKED | {"schema.registry.ssl.truststore.password": "p"}, "KP0121",
     "set schema.registry.ssl.truststore.location, or remove",
     [{"schema.registry.ssl.truststore.location": "/t"},
      {"schema.registry.ssl.truststore.password": None}]),
]  # fmt: skip

#: Options of the sink that test_hints_are_followed.py has no row of.
OTHERS: list[Row] = [
    ({"kafka.bootstrap.servers": "h:9092,,i:9092"}, "KP0105", "remove the extra comma",
     [{"kafka.bootstrap.servers": "h:9092,i:9092"}]),
    ({"kafka.bootstrap.servers": "h"}, "KP0105", "the port is missing: h:9092?",
     [{"kafka.bootstrap.servers": "h:9092"}]),
    ({"kafka.bootstrap.servers": ""}, "KP0104", "set kafka.bootstrap.servers to host:port",
     [{"kafka.bootstrap.servers": "h:9092,i:9092"}]),
    ({"kafka.bootstrap.servers": None}, "KP0104", "set option kafka.bootstrap.servers",
     [{"kafka.bootstrap.servers": "h:9092"}]),
    ({"kafka.bootstrap.servers": "SSL://h:9092"}, "KP0105",
     "does not set the protocol; kafka.security.protocol does",
     [{"kafka.bootstrap.servers": "h:9092", "kafka.security.protocol": "SSL"}]),
    ({"kafka.bootstrap.servers": "u:p@h:9092"}, "KP0105",
     "a name goes to kafka.sasl.username, a password to kafka.sasl.password",
     [{"kafka.bootstrap.servers": "h:9092"} | PLAIN | NAMED]),
    ({"onNullKey": "write"}, "KP0107", "set keyColumns, or remove onNullKey",
     [{"keyColumns": "k"}, {"onNullKey": None}]),
    ({"onNullKey": "write", "keyColumns": "k", "keyFormat": "string"}, "KP0107",
     "remove onNullKey, or set another keyFormat", [{"onNullKey": None}, {"keyFormat": "json"}]),
    ({"jsonPlainDecimals": "true"}, "KP0107",
     "set valueColumns or keyColumns with the format json, or remove jsonPlainDecimals",
     [{"valueColumns": "*"}, {"keyColumns": "k"}, {"jsonPlainDecimals": None}]),
    ({"kafka.request.timeout.ms": "5000", "kafka.delivery.timeout.ms": "10"}, "KP0100",
     "kafka.delivery.timeout.ms is 10", [{"kafka.delivery.timeout.ms": "6000"}]),
    ({"kafka.retries": "0", "kafka.enable.idempotence": "true"}, "KP0100",
     "remove kafka.retries=0 or kafka.enable.idempotence=true",
     [{"kafka.retries": None}, {"kafka.enable.idempotence": None}]),
    ({"preflight": "of"}, "KP0103", "did you mean off?", [{"preflight": "off"}]),
    ({"kafka.retries": "many"}, "KP0103", "kafka.retries takes ", [{"kafka.retries": "5"}]),
    ({"nothing.like.it": "x"}, "KP0101", "every option: kprod options",
     [{"nothing.like.it": None}]),
    ({"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "a",
      "errors.dead.letter.queue.topic.name": "b"}, "KP0100",
     "remove errors.dead.letter.queue.topic.name",
     [{"errors.dead.letter.queue.topic.name": None}]),
    (PLAIN | {USER: "u", PASSWORD: "${secrets:a/b}"}, "KP0111",
     "${env:NAME}, ${file:/path} and ${file:/path:key} are understood",
     [{PASSWORD: "${env:SECRET}"}, {PASSWORD: "${file:/path}"}, {PASSWORD: "${file:/path:key}"}]),
    (PLAIN | {USER: "u", PASSWORD: "{{secrets/a/b}}"}, "KP0111", "write ${env:NAME} here",
     [{PASSWORD: "${env:SECRET}"}]),
]  # fmt: skip

FOLLOWED: list[Row] = [*LOGINS, *TOKENS, *STORES, *SCHEMAS, *OTHERS]
