"""The error when a library of an extra is missing. Owns: that message. Never: the libraries."""

from __future__ import annotations


def library_needed(
    error: ImportError, what: str = "metrics", extra: str = "metrics"
) -> ImportError:
    """The error for a library that could not be imported, which ``what`` need."""
    return ImportError(
        f"{what} need {error.name}: pip install 'spark-kafka-sink[{extra}]' on the driver",
        name=error.name,
    )
