"""The sender thread: from drained batches to completed ones (Java's ``Sender``).

Owns: ``sender`` (the loop), ``network_thread`` (runs it), ``in_flight_batches``,
``produce_errors`` (the errors of failed batches), ``batch_completion`` (listeners of completed
batches) and ``producer_failure`` (an error that fails the producer).
"""
