"""A digest of this package's files, to check that driver and executors have the same files.

A task compares its digest with the driver's digest (``plan/planned_task.py``). The version is not
enough: two builds between releases, and two checkouts, have the same version.

Reading hundreds of files takes longer than a small task. So the build of a wheel adds the digest to
the wheel (``tools/package_files.py``), and each process reads it there. In a checkout, or if the
installed files may have changed (:func:`digest_as_built`), a process computes the digest from the
content of the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

#: Hexadecimal digits: it distinguishes builds, and is no proof against forgery.
_LENGTH: Final = 12
_SOURCES: Final = ".py"
_PACKAGE: Final = "spark_kafka_sink"
#: The file that the build of a wheel adds to the package. It contains two digests: of the content
#: of the package's files, and of their sizes.
BUILT: Final = "datasource/process/built_files.json"


@cache
def package_digest() -> str:
    """The digest of the package's source files, the same in a directory and in a zip. Computed once
    per process.
    """
    root = files(_PACKAGE)
    if isinstance(root, zipfile.Path):
        return digest_of(_of_zip(root))
    directory = Path(str(root))
    return digest_as_built(directory, package_record(directory)) or digest_of_files(directory)


def digest_as_built(root: Path, record: Path) -> str | None:
    """Reads the digest of the package that was computed at the build of the wheel. ``root`` is the
    directory of the package, and ``record`` is the wheel's RECORD file, which an installer writes
    last. Returns None in these cases:

    - The package was not installed from a wheel.
    - The names or sizes of the files differ from the wheel.
    - A file's ctime is later than RECORD's ctime. The ctime of a file can't be set back.
    - A file's mtime is later than RECORD's mtime.
    """
    try:
        was = json.loads((root / BUILT).read_bytes())
        installed = record.stat()
    except (OSError, ValueError):
        return None
    found = [(name, file.stat()) for name, file in sources(root)]
    if digest_of([(name, one.st_size) for name, one in found]) != was["sizes"]:
        return None
    is_newer = any(
        one.st_ctime_ns > installed.st_ctime_ns or one.st_mtime_ns > installed.st_mtime_ns
        for _, one in found
    )
    return None if is_newer else str(was["digest"])


def digest_of_files(root: Path) -> str:
    """Computes the digest of the package in the directory ``root`` from the content of its
    files.
    """
    return digest_of([(name, zlib.crc32(Path(file).read_bytes())) for name, file in sources(root)])


def digest_of(of_files: list[tuple[str, int]]) -> str:
    """Hashes pairs of a file name and a number, such as ``[("source.py", 7213)]``. The number is
    the checksum or the size of the file.
    """
    return hashlib.sha256(repr(sorted(of_files)).encode()).hexdigest()[:_LENGTH]


def package_record(root: Path) -> Path:
    """The path of the RECORD file that an installation from a wheel writes next to the package in
    ``root``. The file may not exist.
    """
    from spark_kafka_sink.base.version import __version__

    return root.parent / f"{_PACKAGE}-{__version__}.dist-info" / "RECORD"


def sources(directory: Path | str, below: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yields each source file of the package: the path below the package, such as
    ``producer/batch.py``, and the directory entry.
    """
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(_SOURCES):
                yield below + name, entry
            elif "." not in name and name != "__pycache__" and entry.is_dir():
                yield from sources(entry.path, f"{below}{name}/")


def _of_zip(root: zipfile.Path) -> list[tuple[str, int]]:
    """The name and CRC of each source file, from the zip's table of contents, without decompressing
    a file.
    """
    found = root.root.infolist()
    inside = [(one.filename.removeprefix(root.at), one) for one in found]
    return [(n, one.CRC) for n, one in inside if n != one.filename and n.endswith(_SOURCES)]
