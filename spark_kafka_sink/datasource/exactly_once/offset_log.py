"""Reads files of a query's checkpoint: ``offsets/<batchId>`` of Spark's offset log, ``metadata``,
and ``sources/...``. :func:`checkpoint_text` also restricts the file systems and paths from which
files are read.

``source_offsets.py`` parses the content of an offset log, and ``checkpoint.py`` uses the content.
Spark writes a batch's file in the offset log before the batch begins, and never changes the file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.errors import ConfigError, KafkaError, safe_text
from spark_kafka_sink.base.security.allow_lists import check_file, check_uri
from spark_kafka_sink.base.security.local_files import UnusableFileError, read_file, refuse_unusable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The largest size of a file in bytes. The offsets of 100 000 partitions take three million bytes.
_MOST_BYTES: Final = 16 * 1024 * 1024

#: The schemes of the file systems that pyarrow may read here. pyarrow supports more schemes, such
#: as http.
_BY_ARROW: Final = frozenset(("abfs", "abfss", "gs", "hdfs", "s3", "viewfs"))
#: The schemes that Spark may read here. Hadoop supports more schemes, such as http and ftp.
_BY_SPARK: Final = _BY_ARROW | {"cosn", "dbfs", "obs", "ofs", "oss", "s3a", "wasb", "wasbs"}
#: With these schemes, the user part of a URI is the container.
_AZURE: Final = frozenset(("abfs", "abfss", "wasb", "wasbs"))
#: The hosts that pyarrow may read on Azure. pyarrow sends the driver's credentials to any host.
_AZURE_ACCOUNT: Final = r"[a-z0-9-]+@[a-z0-9]+\.(dfs|blob)\.core\.windows\.net"
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)", re.DOTALL)


def checkpoint_text(checkpoint: str, file: str, session: SparkSession | None = None) -> str:
    """Reads the file ``checkpoint/<file>``, of at most 16 MiB, and returns its text. Raises
    ConfigError if the file can't be read.

    If ``session`` is set, Spark reads the file. The session may be a classic or a Connect session.
    If ``session`` is None, this process reads a local file itself, and pyarrow reads any other URI.

    A URI that contains more than a path is refused. For example, with the query part
    ``?endpoint_override=...``, pyarrow would send requests with the driver's credentials to that
    endpoint.
    """
    path = f"{checkpoint.rstrip('/')}/{file}"
    try:
        content = _by_spark(session, path) if session is not None else _without_spark(path)
        return content.decode()
    except KafkaError:
        raise
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise ConfigError(
            f"{shown(path)} can't be read: {safe_text(first)}",
            hint="checkpointLocation must be given as an option, and be the query's own; in a "
            f"stream it is a local path or a URI of {', '.join(sorted(_BY_ARROW))}, in "
            "foreach_batch and transaction Spark reads it, from other file systems too",
        ) from error


def shown(path: str) -> str:
    """The path as it may be shown in a message: without a URI's query or password, which may be
    secret.
    """
    named = re.sub(r"//[^@]*:[^@]*@", "//[hidden]@", re.sub(r"\?.*", "?...", path, flags=re.DOTALL))
    return f"checkpointLocation: {safe_text(named)}"


def _without_spark(path: str) -> bytes:
    # Databricks mounts DBFS.
    mounted = f"/dbfs/{path[6:]}" if path.startswith("dbfs:/") else path
    local = _local(mounted)
    if local is not None:
        return read_file(local, shown(path), _MOST_BYTES, lambda it: check_file(it, shown(path)))
    _check_uri(path, _BY_ARROW)
    azure = re.match(r"abfss?://(?P<host>[^/]*)", path)
    if azure is not None and not re.fullmatch(_AZURE_ACCOUNT, azure["host"]):
        message = "its host is not container@account.dfs.core.windows.net"
        raise UnusableFileError(message)
    from pyarrow import fs

    found, inside = fs.FileSystem.from_uri(path)
    with found.open_input_stream(inside) as stream:
        content: bytes = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        message = f"it is larger than {_MOST_BYTES} bytes"
        raise UnusableFileError(message)
    return content


def _by_spark(session: SparkSession, path: str) -> bytes:
    local = _local(path)
    if local is None:
        _check_uri(path, _BY_SPARK)
    else:
        check_file(local, shown(path))
        refuse_unusable(local)
    if glob := re.search(r"[*?\[\]{}\\]", path):
        message = f"Spark reads a path with {glob.group()} as a pattern"
        raise UnusableFileError(message)
    # The length is compared before the content is read.
    small = session.read.format("binaryFile").load(path).where(f"length <= {_MOST_BYTES}")
    rows = small.select("content").collect()
    if len(rows) != 1:
        message = f"Spark found {len(rows)} files of at most {_MOST_BYTES} bytes there"
        raise UnusableFileError(message)
    return bytes(rows[0][0])


def _local(path: str) -> str | None:
    """The path of a local file. ``path`` is a path without a scheme, or a ``file:`` URI. Returns
    None for any other URI.
    """
    uri = _URI.fullmatch(path)
    if uri is None:
        return path
    scheme, host, inside = uri.groups()
    return inside if scheme.lower() == "file" and not host else None


def _check_uri(uri: str, schemes: frozenset[str]) -> None:
    """Raises UnusableFileError if the URI has a scheme that is not in ``schemes``, or if it
    contains more than the name of a file. Raises NotAllowedError if the operator's allow list does
    not permit the URI.
    """
    match = _URI.fullmatch(uri)
    scheme, host, inside = match.groups() if match else ("", "", "")
    at = "@" in (host or "")
    problem = None
    if scheme not in schemes:
        problem = f"its scheme is not supported here: {', '.join(sorted(schemes))} are"
    elif re.search(r"[?#%]", uri):
        problem = "its URI has a query or an escape, and only a path is allowed"
    elif {".", ".."} & set(inside.split("/")):
        problem = "its URI has a step '.' or '..'"
    elif (at and scheme not in _AZURE) or not re.fullmatch(r"([\w-]+@)?[\w.-]*(:\d+)?", host or ""):
        problem = "its URI has a user, or its host is none"
    if problem is not None:
        raise UnusableFileError(problem)
    check_uri(uri, shown(uri))
