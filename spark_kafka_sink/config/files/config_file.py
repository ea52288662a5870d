"""The file that the option ``configFile`` names: a Kafka client's properties file.

Owns: reading it, and the references to lines with secrets. Never: which names it may have
(``given_options``), an option's meaning (``cross_checks``), resolving a reference
(``secret_references``).

The driver reads the file when a write is planned. Lines without secrets become options that are
sent to the tasks with the others. **A secret is never sent**: it becomes a reference to its line,
``${file:/path:key}``, which each process that connects to brokers resolves in the same file. So a
file with secrets must also be on the executors, but not one that only refers to secrets
(``sasl.password=${env:PASSWORD}``).
"""

from __future__ import annotations

from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security.allow_lists import check_config_file
from spark_kafka_sink.base.security.local_files import UnusableFileError, decoded, read_file
from spark_kafka_sink.config.files.java_properties import property_lines

OPTION = "configFile"


def location_of(value: object) -> str:
    """The path that the option's value names."""
    return str(value).strip().removeprefix("file://")


def read_lines(location: str) -> list[tuple[str, str]]:
    """The file's lines, names as they are written. ConfigError for one that can't be read."""
    shown = safe_text(location)
    if "://" in location or location.startswith("dbfs:"):
        raise ConfigError(
            f"{OPTION} {shown} is not a local path",
            hint="it is read as a file: mount it, or give its local path (/Volumes/...)",
        )
    what = f"{OPTION} {shown}"
    try:
        content = read_file(location, what, check=lambda path: check_config_file(path, what))
        return property_lines(decoded(content))
    except UnusableFileError as error:
        raise ConfigError(
            f"{OPTION} {shown} can't be read: {error}",
            hint="it is a file in Java's properties format, such as client.properties; a write"
            " reads it on the driver, and secrets in it on the executors too",
        ) from None
