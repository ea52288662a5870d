"""AWS Signature Version 4 in a URL's query, for ``kafka-cluster:Connect`` and nothing else.

Owns: the arithmetic (AWS's "Create a signed request", presigned form). Never: whose keys they are
(``aws_msk_iam.py``), a request: what is signed here is never sent to AWS by us.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

SERVICE: Final = "kafka-cluster"
ACTION: Final = "kafka-cluster:Connect"
#: How long a signature is good, in seconds; a broker's session ends with it.
EXPIRES_S: Final = 900
_ALGORITHM: Final = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """``session_token`` None: keys of a user, which do not end."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def signed_query(keys: AwsKeys, region: str, host: str, wall_ms: int) -> dict[str, str]:
    """The signed parameters of ``GET https://host/?Action=kafka-cluster:Connect``, by name.

    Names are AWS's, values are not URL-encoded.
    """
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall_ms // 1000))
    scope = f"{moment[:8]}/{region}/{SERVICE}/aws4_request"
    parameters = {
        "Action": ACTION,
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{keys.access_key}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(EXPIRES_S),
        "X-Amz-SignedHeaders": "host",
    }
    if keys.session_token:
        parameters["X-Amz-Security-Token"] = keys.session_token
    empty = hashlib.sha256(b"").hexdigest()
    request = f"GET\n/\n{encoded_query(parameters)}\nhost:{host}\n\nhost\n{empty}"
    digest = hashlib.sha256(request.encode()).hexdigest()
    to_sign = f"{_ALGORITHM}\n{moment}\n{scope}\n{digest}"
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), "sha256").digest()
    signature = hmac.new(key, to_sign.encode(), "sha256").hexdigest()
    return parameters | {"X-Amz-Signature": signature}


def encoded_query(parameters: dict[str, str]) -> str:
    """Sorted by name, each byte but the unreserved ones as %XX."""
    return "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(parameters.items())
    )
