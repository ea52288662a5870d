"""A Kafka sink for Spark, and the fastest Kafka producer in Python.

Importing this package imports neither pyspark nor pyarrow: a task pays for what it uses.
"""

from __future__ import annotations

__version__ = "0.1.0"
