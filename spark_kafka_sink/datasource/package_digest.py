"""A digest of this package's files, by which driver and executors know that they have the same.

Owns: :func:`package_digest`. Never: what is done when they differ (``write_plan.py``).

Versions don't show it: two builds between releases, and two checkouts, have one version.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

#: Hexadecimal digits: it distinguishes builds, and is no proof against forgery.
_LENGTH: Final = 12
_SOURCES: Final = ".py"
_PACKAGE: Final = __name__.partition(".")[0]


@cache
def package_digest() -> str:
    """Of the source files, the same in a directory and in a zip; read once in a process."""
    root = files(_PACKAGE)
    sums = _of_zip(root) if isinstance(root, zipfile.Path) else _of_directory(Path(str(root)))
    return hashlib.sha256(repr(sorted(sums)).encode()).hexdigest()[:_LENGTH]


def _of_directory(root: Path) -> list[tuple[str, int]]:
    """Name and checksum of each file."""
    names = [str(path.relative_to(root)) for path in root.rglob(f"*{_SOURCES}")]
    return [(name.replace("\\", "/"), zlib.crc32((root / name).read_bytes())) for name in names]


def _of_zip(root: zipfile.Path) -> list[tuple[str, int]]:
    """The same from the zip's directory, so that nothing is decompressed."""
    found = root.root.infolist()
    inside = [(one.filename.removeprefix(root.at), one) for one in found]
    return [(n, one.CRC) for n, one in inside if n != one.filename and n.endswith(_SOURCES)]
