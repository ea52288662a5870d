"""The sender thread: from drained batches to completed batches (Java's ``Sender``).

Owns: ``sender`` (the loop), ``in_flight_batches`` and ``produce_errors`` (the errors of failed
batches).
"""
