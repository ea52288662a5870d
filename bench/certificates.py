"""A certificate for a broker on this machine, made by the JDK's keytool. For one run only."""

from __future__ import annotations

import subprocess
from pathlib import Path

_PASSWORD = "changeit"  # of a key that lives as long as the run


def broker_certificate(directory: Path) -> tuple[dict[str, str], Path]:
    """Server properties for a listener named SSL, and the file that clients must trust."""
    store, certificate = directory / "broker.p12", directory / "broker.pem"
    common = ["-keystore", str(store), "-storepass", _PASSWORD, "-alias", "broker"]
    subprocess.run(
        ["keytool", "-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-validity", "2",
         "-storetype", "PKCS12", "-dname", "CN=localhost", "-ext",
         "san=ip:127.0.0.1,dns:localhost", *common],
        check=True, capture_output=True,
    )  # fmt: skip
    subprocess.run(
        ["keytool", "-exportcert", "-rfc", "-file", str(certificate), *common],
        check=True,
        capture_output=True,
    )
    prefix = "listener.name.ssl.ssl.keystore"
    properties = {
        f"{prefix}.location": str(store),
        f"{prefix}.type": "PKCS12",
        f"{prefix}.password": _PASSWORD,
        "listener.name.ssl.ssl.key.password": _PASSWORD,
    }
    return properties, certificate
