"""TLS messages that no ``ssl`` sends: what a server of one's own would say, encrypted by hand.

The keys come from the key log (``SSLContext.keylog_filename``), so no OpenSSL needs to be bent.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_HANDSHAKE, _DATA = 22, 23
#: Asks the other side to renew its keys, too.
_KEY_UPDATE = b"\x18\0\0\1\1"
_HELLO_REQUEST = b"\0\0\0\0"

#: In the clear: a server may send it before it has shown anything.
HELLO_REQUEST = struct.pack(">BHH", _HANDSHAKE, 0x0303, 4) + _HELLO_REQUEST


def key_updates(keylog: Path, beside: bytes = b"", every: int = 1) -> Iterator[bytes]:
    """TLS 1.3's KeyUpdate, for ever, of a session with AES_256_GCM_SHA384 whose server has sent no
    byte of its own and no ticket. ``beside`` are bytes of the session, in front of ``every`` so
    many-th.
    """
    secret = _logged(keylog, "SERVER_TRAFFIC_SECRET_0")
    for number in itertools.count(1):
        cipher = AESGCM(_expand(secret, b"key", 32))
        # Each has keys of its own, and so the first number of a record.
        nonce = bytearray(_expand(secret, b"iv", 12))
        out = b""
        if beside and number % every == 0:
            out = _record(cipher, bytes(nonce), beside + bytes([_DATA]))
            nonce[-1] ^= 1
        yield out + _record(cipher, bytes(nonce), _KEY_UPDATE + bytes([_HANDSHAKE]))
        secret = _expand(secret, b"traffic upd", 48)


def _record(cipher: AESGCM, nonce: bytes, inner: bytes) -> bytes:
    header = struct.pack(">BHH", _DATA, 0x0303, len(inner) + 16)
    return header + cipher.encrypt(nonce, inner, header)


def hello_requests(keylog: Path, randoms: tuple[bytes, bytes], sent: int = 1) -> Iterator[bytes]:
    """TLS 1.2's HelloRequest, for ever, of a session with ECDHE-..-AES128-GCM-SHA256 whose server
    has ``sent`` that many records under its keys (its Finished); ``randoms`` are the client's and
    the server's.
    """
    master = _logged(keylog, "CLIENT_RANDOM")
    client, server = randoms
    block = _prf(master, b"key expansion" + server + client, 2 * 16 + 2 * 4)
    cipher, salt = AESGCM(block[16:32]), block[36:40]
    while True:
        number = struct.pack(">Q", sent)
        covered = number + struct.pack(">BHH", _HANDSHAKE, 0x0303, len(_HELLO_REQUEST))
        body = number + cipher.encrypt(salt + number, _HELLO_REQUEST, covered)
        yield struct.pack(">BHH", _HANDSHAKE, 0x0303, len(body)) + body
        sent += 1


def server_random(sent: bytes) -> bytes:
    """Of the ServerHello that begins what a server sent."""
    return sent[11:43]


def client_random(keylog: Path) -> bytes:
    return bytes.fromhex(keylog.read_text().split("CLIENT_RANDOM ")[1].split()[0])


def _logged(keylog: Path, label: str) -> bytes:
    for line in keylog.read_text().splitlines():
        if line.startswith(f"{label} "):
            return bytes.fromhex(line.split()[2])
    raise AssertionError(f"there is no {label} in the key log")


def _expand(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label with SHA-384 (RFC 8446, 7.1), at most one block."""
    full = b"tls13 " + label
    info = struct.pack(">HB", size, len(full)) + full + b"\0"
    return hmac.digest(secret, info + b"\1", hashlib.sha384)[:size]


def _prf(secret: bytes, seed: bytes, size: int) -> bytes:
    """TLS 1.2's P_SHA256 (RFC 5246, 5)."""
    out, link = b"", seed
    while len(out) < size:
        link = hmac.digest(secret, link, hashlib.sha256)
        out += hmac.digest(secret, link + seed, hashlib.sha256)
    return out[:size]
