"""The sender thread: from drained batches to completed batches (Java's ``Sender``).

Owns: ``sender`` (the loop), ``in_flight_batches``, ``request_sizes`` (the bytes of a request), and
``produce_errors`` (the errors of failed batches).
"""
