"""Answers to Metadata by the byte: a liar's are as long and as dense as the wire allows."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def count(version: int, items: int) -> bytes:
    return varint(items + 1) if version >= 9 else int32(items)


def string(version: int, text: bytes) -> bytes:
    return (varint(len(text) + 1) if version >= 9 else struct.pack(">h", len(text))) + text


def tags(version: int) -> bytes:
    return b"\0" if version >= 9 else b""


def broker(
    version: int, node_id: int, host: bytes = b"a", port: int = 1, rack: bytes | None = None
) -> bytes:
    end = (b"\0" if version >= 9 else b"\xff\xff") if rack is None else string(version, rack)
    return int32(node_id) + string(version, host) + int32(port) + end + tags(version)


def partition(
    version: int,
    number: int,
    replicas: Sequence[int] = (),
    *,
    leader: int = -1,
    error: int = 0,
    offline: Sequence[int] = (),
) -> bytes:
    out = struct.pack(">hii", error, number, leader)
    if version >= 7:
        out += int32(-1)
    for ids in (replicas, replicas, offline)[: 2 if version < 5 else 3]:
        out += count(version, len(ids)) + struct.pack(f">{len(ids)}i", *ids)
    return out + tags(version)


def topic(version: int, name: bytes, partitions: Sequence[bytes] = (), error: int = 0) -> bytes:
    out = struct.pack(">h", error) + string(version, name)
    if version >= 10:
        out += bytes(16)
    out += b"\0" + count(version, len(partitions)) + b"".join(partitions)
    if version >= 8:
        out += int32(0)
    return out + tags(version)


def answer(
    version: int,
    brokers: Sequence[bytes] = (),
    topics: Iterable[bytes] = (),
    *,
    throttle_ms: int = 0,
    error: int = 0,
) -> bytes:
    found = list(topics)
    out = int32(throttle_ms) + count(version, len(brokers)) + b"".join(brokers)
    out += (b"\0" if version >= 9 else b"\xff\xff") + int32(0)
    out += count(version, len(found)) + b"".join(found)
    if 8 <= version <= 10:
        out += int32(0)
    if version >= 13:
        out += struct.pack(">h", error)
    return out + tags(version)
