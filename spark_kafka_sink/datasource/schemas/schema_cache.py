"""Stores responses of schema registries in files, so that a stream continues while its registry is
down. ``payload_schemas`` decides when a stored response is used.

The files are on the driver's machine, in the first of these directories that can be used:

1. The directory in the environment variable ``KPROD_SCHEMA_CACHE``. If this variable is set, no
   other directory is used. The value ``off`` means that nothing is stored.
2. ``$XDG_CACHE_HOME/spark_kafka_sink/schemas`` (``~/.cache`` by default).
3. A directory of this user in the directory for temporary files.

A file is used only under these conditions:

* Directory and file belong to this user, are not links, and no other user can write to them. A
  wrong schema would make records unreadable.
* The digest of the file's text is right. After a power failure, a part of a file can be missing.
* The file has the digest of the request. The request itself is not in the file, because a
  registry's address may contain a secret.

Several processes may write a file at the same time, because each process replaces the whole file.
This module raises no error: while the registry responds, a write does not need the stored
responses.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.network.schema_registry import RegisteredSchema

_log = logging.getLogger(__name__)

ENVIRONMENT: Final = "KPROD_SCHEMA_CACHE"
#: The age in seconds at which a response is too old, because no registry has confirmed it.
LONGEST_S: Final = 30 * 24 * 3600
#: The largest number of files.
MOST_FILES: Final = 256
#: The largest size of a file in bytes.
_MOST_BYTES: Final = 32 << 20
#: The largest size of all files together in bytes.
_MOST_BYTES_OF_ALL: Final = 64 << 20
_VERSION: Final = 1
_ENDING, _WARNED = ".json", ".warned"
#: The names of this module's files: responses, temporary files, and files that mark a first use. A
#: directory that the user names may contain other files.
_OURS: Final = re.compile(r"[0-9a-f]{40}\.(json(\.[0-9a-f]{32})?|warned)")

#: A request to a registry: the registry's addresses, the format, and the arguments.
Question = tuple[object, ...]


class SchemaCache:
    """The stored response of a schema registry to one request (``question``), in a file on this
    machine. Thread-safe, and safe for several processes.
    """

    def __init__(self, question: Question) -> None:
        self._question = _digest(json.dumps(question))
        # A file, because Spark may plan each micro-batch in a new process. Not in the checkpoint,
        # because only Spark writes to it.
        self._name = self._question[:40]

    def read(self) -> RegisteredSchema | None:
        """Reads the stored response. Returns None if there is no valid response, or if it is older
        than 30 days.
        """
        with contextlib.suppress(OSError), _directory() as directory:
            return self._believed(_content(directory, self._name + _ENDING))
        return None

    def write(self, answer: RegisteredSchema) -> None:
        """Stores the response that the registry has just sent. Logs an error of the file system,
        and never raises.
        """
        guid = None if answer.guid is None else str(answer.guid)
        held = [answer.id, answer.type, answer.text, answer.unusable, guid, answer.references]
        body = json.dumps({"version": _VERSION, "question": self._question, "answer": held})
        data = f"{_digest(body)}\n{body}".encode()
        if len(data) > _MOST_BYTES:
            return
        try:
            with _directory() as directory:
                _replace(directory, self._name + _ENDING, data)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._name + _WARNED, dir_fd=directory)
                _forget_the_oldest(directory)
        except OSError as error:
            why = error.strerror or type(error).__name__
            _log.info("schemas can't be cached for an outage of the registry: %s", why)

    def is_first_use(self) -> bool:
        """True at the first call after the registry's last response, and False at each later call.
        The calls of all processes of the same operating-system user count together. If the file
        system fails, each call returns True.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            with _directory() as directory:
                os.close(os.open(self._name + _WARNED, flags, 0o600, dir_fd=directory))
        except FileExistsError:
            return False
        except OSError:
            return True
        return True

    def _believed(self, data: bytes) -> RegisteredSchema | None:
        digest, _, body = data.decode("utf-8", "replace").partition("\n")
        found = json_object(body) or {}
        if digest != _digest(body) or found.get("version") != _VERSION:
            return None
        if found.get("question") != self._question:
            return None
        schema_id, kind, text, unusable, guid, references = found["answer"]
        pairs = tuple((name, of) for name, of in references)
        return RegisteredSchema(schema_id, kind, text, unusable, guid and UUID(guid), pairs)


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _places() -> Iterator[Path]:
    given = os.environ.get(ENVIRONMENT)
    if given:
        if given != "off":
            yield Path(given)
        return
    with contextlib.suppress(RuntimeError):  # no home
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        yield Path(home) / "spark_kafka_sink" / "schemas"
    yield Path(tempfile.gettempdir()) / f"spark_kafka_sink-schemas-{os.geteuid()}"


@contextlib.contextmanager
def _directory() -> Iterator[int]:
    """Opens the first directory that only this user can write, and yields its file descriptor.
    Raises OSError if there is none.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd: int | None = None
    problem = OSError("no directory for it")
    for place in _places():
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(place, flags)
            _refuse_what_is_of_others(os.fstat(fd))
            break
        except OSError as error:
            problem = error
            if fd is not None:
                os.close(fd)
                fd = None
    if fd is None:
        raise problem
    try:
        yield fd
    finally:
        os.close(fd)


def _refuse_what_is_of_others(status: os.stat_result) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "another user may write to it")


def _content(directory: int, name: str) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=directory), "rb") as file:
        status = os.fstat(file.fileno())
        _refuse_what_is_of_others(status)
        age_s = time.time() - status.st_mtime
        if not stat.S_ISREG(status.st_mode) or age_s > LONGEST_S or status.st_size > _MOST_BYTES:
            raise OSError("it is no file, too old, or too large")
        return file.read(_MOST_BYTES)


def _replace(directory: int, name: str, data: bytes) -> None:
    """Replaces a file atomically: a reader sees the old or the new content."""
    draft = f"{name}.{uuid.uuid4().hex}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, 0o600, dir_fd=directory), "wb") as file:
            file.write(data)
        os.replace(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=directory)
        raise


def _forget_the_oldest(directory: int) -> None:
    """Removes the oldest files while there are too many files, or while their total size is too
    large. Only files with the names that this cache gives are removed.
    """
    found = []
    with os.scandir(directory) as entries:
        for one in filter(lambda entry: _OURS.fullmatch(entry.name), entries):
            with contextlib.suppress(FileNotFoundError):  # another process forgets, too
                status = one.stat(follow_symlinks=False)
                found.append((status.st_mtime, one.name, status.st_size))
    found.sort(reverse=True)
    total = sum(size for _, _, size in found)
    while len(found) > MOST_FILES or total > _MOST_BYTES_OF_ALL:
        _, name, size = found.pop()
        total -= size
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)
