"""The Python process that Spark started: its session, its identity, its limits, its errors.

The files of this folder write no rows and open no connections:

==================  ==================================================================
active_session      makes a Spark session active for a call
asked_of_driver     requests from the user's process to the driver
calling_query       the streaming query that has called a foreachBatch function
driver_identity     a token of the Spark driver that this process belongs to
connect_function    a hint for a foreachBatch function that Spark Connect can't start
package_digest      the digest of the package, which tasks and driver compare
spark_needed        the error of a process whose PySpark is missing or too old
plain_errors        errors as one line, without a traceback
process_logging     loggers in a process that Spark has not configured
worker_heap         excludes imported modules from a worker's garbage collections
worker_memory       the error of a worker that reaches Spark's memory limit
==================  ==================================================================
"""
