"""The security of a local Kafka: certificates, users, and the options for clients.

The certificates and passwords are created together with the ``KafkaCluster``, and are stored only
in the temporary directory of the cluster. (For Docker, ``secure_files`` writes them to another
directory.) Settings without a secret are in ``conf/kafka/secure.properties``. The users are:

* ``alice``: a super user.
* ``bob``: has only the rights that ACLs give him.
* ANONYMOUS: a client on the PLAINTEXT listener. It is also a super user, so that the tools of a
  test need no credentials.

``alice`` and ``bob`` each have one random password, for PLAIN and for both SCRAM mechanisms. They
also have a client certificate, whose CN is the name of the user. For OAUTHBEARER, the name of the
user is the claim ``sub`` of the token.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.local_kafka.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.ports import HOST
from spark_kafka_sink.local_kafka.server_properties import read_properties, template_directory

#: The clients' listeners of a secure cluster, name to protocol. PLAINTEXT is for tools.
LISTENERS: Mapping[str, str] = {
    protocol: protocol for protocol in ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")
}
#: Super user, and the user without any right.
USERS = ("alice", "bob")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

#: Kafka's own minimum, which is plenty for a password of 192 random bits.
_SCRAM_ITERATIONS = 4096
_SECURITY = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, repr=False)
class Security:
    """The secrets of one secure cluster. All files are in PEM.

    * ``ca``: the file with the certificate of the CA.
    * ``broker_key``: the file with the private key and certificate chain of the brokers.
    * ``client_keys``: for each user, the file with the private key and certificate chain.
    * ``passwords``: the password of each user.
    """

    ca: Path
    broker_key: Path
    client_keys: Mapping[str, Path]
    passwords: Mapping[str, str]

    @classmethod
    def make(cls, directory: Path) -> Security:
        """Creates new certificates in ``directory``, and new passwords. Raises LocalKafkaError if
        the package cryptography is not installed.
        """
        try:
            from spark_kafka_sink.local_kafka.certificates import CertificateAuthority
        except ImportError as error:
            raise LocalKafkaError(
                f"A secure local Kafka needs the package cryptography ({error}).",
                hint="pip install 'spark-kafka-sink[tls]'",
            ) from None
        directory.mkdir(parents=True)
        authority = CertificateAuthority(directory / "ca.pem")
        return cls(
            ca=authority.path,
            broker_key=authority.issue(directory / "broker.pem", "broker", (HOST, "localhost")),
            client_keys={u: authority.issue(directory / f"{u}.pem", u) for u in USERS},
            passwords={user: secrets.token_urlsafe(24) for user in USERS},
        )

    def server_properties(self, listeners: Mapping[str, str]) -> dict[str, str]:
        """The server settings for security. They are the same for all nodes. ``listeners`` maps the
        name of each listener to its security protocol.
        """
        shared = read_properties(template_directory() / "secure.properties")
        users = " ".join(f'user_{name}="{word}"' for name, word in self.passwords.items())
        plain = f"{_SECURITY}.plain.PlainLoginModule required {users};"
        modules = {name: shared.pop(name) for name in list(shared) if name.endswith("jaas.config")}
        modules["plain.sasl.jaas.config"] = plain
        # Kafka takes a login module for each listener and mechanism, and never for a mechanism.
        for listener, protocol in listeners.items():
            if protocol.startswith("SASL"):
                prefix = f"listener.name.{listener.lower()}"
                shared |= {f"{prefix}.{name}": module for name, module in modules.items()}
        return shared | {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker_key),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }

    def format_options(self) -> tuple[str, ...]:
        """The arguments of ``kafka-storage format`` that create the users' SCRAM credentials. They
        contain only salted passwords (RFC 5802: PBKDF2 with the hash of the mechanism), and no
        plain-text password.
        """
        options = []
        for mechanism, algorithm in (("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")):
            for user, password in self.passwords.items():
                salt = os.urandom(24)
                salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, _SCRAM_ITERATIONS)
                credential = (
                    f'[name="{user}",iterations={_SCRAM_ITERATIONS},'
                    f'salt="{_base64(salt)}",saltedpassword="{_base64(salted)}"]'
                )
                options += ["--add-scram", f"{mechanism}={credential}"]
        return tuple(options)

    def client_options(
        self, protocol: str, mechanism: str = "SCRAM-SHA-512", user: str = "alice"
    ) -> dict[str, str]:
        """The options for a client, under Java's names, without ``bootstrap.servers``.

        If ``protocol`` is SSL, the client has the certificate of ``user``. If ``protocol`` is
        SASL_SSL, the client has no certificate.
        """
        options = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if protocol == "SSL":
            key = str(self.client_keys[user])
            options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": key}
        if protocol.startswith("SASL"):
            options |= {"sasl.mechanism": mechanism}
            options |= {"sasl.jaas.config": self._login_module(mechanism, user)}
        return options

    def _login_module(self, mechanism: str, user: str) -> str:
        if mechanism == "OAUTHBEARER":
            module = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"
            return f'{module} required unsecuredLoginStringClaim_sub="{user}";'
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        password = self.passwords[user]
        return f'{_SECURITY}.{kind}LoginModule required username="{user}" password="{password}";'


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()
