"""The network thread of a producer: sends batches and handles the responses (Java's ``Sender``).

``sender`` has the loop of the thread, ``in_flight_batches`` the batches without an outcome,
``request_sizes`` the maximum size of a request, and ``produce_errors`` the errors of failed
batches.
"""
