"""Creates the error for a missing library of an extra, such as ``spark-kafka-sink[metrics]``."""

from __future__ import annotations


def library_needed(
    error: ImportError, what: str = "metrics", extra: str = "metrics"
) -> ImportError:
    """Creates the error for a missing library, with the extra to install. ``what`` is the feature
    that needs the library.
    """
    return ImportError(
        f"{what} need {error.name}: pip install 'spark-kafka-sink[{extra}]' on the driver",
        name=error.name,
    )
