"""The network thread of a producer: sends batches and handles the responses (Java's ``Sender``).

Owns: ``sender`` (the loop), ``in_flight_batches`` (batches without a response), ``request_sizes``
(the maximum size of a request), and ``produce_errors`` (the errors of failed batches).
"""
