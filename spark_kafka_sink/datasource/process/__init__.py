"""The Python process that Spark started: its session, its identity, its limits, its errors.

Owns, by file:

==================  ==================================================================
active_session      the session that is active, and making one active for a call
calling_query       the streaming query on whose behalf a function runs
driver_identity     the Spark application that this process belongs to
connect_function    whether a function runs in a Spark Connect server
package_digest      the digest of the package, which tasks and driver compare
spark_needed        the error of a process without a PySpark that fits
plain_errors        one line in place of a traceback
process_logging     the loggers of a process that Spark has not configured
worker_heap         memory that a worker gives back between tasks
worker_memory       the error of memory that fails under a limit of Spark
==================  ==================================================================

Never: a write, or a connection.
"""
