"""The error when a library of the extra ``metrics`` is missing.

Owns: that one line. Never: the libraries.
"""

from __future__ import annotations


def library_needed(error: ImportError) -> ImportError:
    """The error for a library that could not be imported."""
    return ImportError(
        f"metrics need {error.name}: pip install 'spark-kafka-sink[metrics]' on the driver",
        name=error.name,
    )
