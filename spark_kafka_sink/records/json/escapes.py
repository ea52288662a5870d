"""The escapes of characters in a JSON string, as Jackson writes them.

``json_text`` and ``variant_text`` use this table to escape a text.
"""

from __future__ import annotations

from typing import Final

#: By byte. All other bytes are written as they are.
ESCAPES: Final = {
    byte: b"\\u%04X" % byte for byte in range(0x20)
} | {ord(char): b"\\" + short for char, short in zip(
    '"\\\b\t\n\f\r', (b'"', b"\\", b"b", b"t", b"n", b"f", b"r"), strict=True
)}  # fmt: skip
