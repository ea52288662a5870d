"""The sender's thread: from drained batches to completed ones (Java's ``Sender``).

Owns: ``sender`` (one turn of the loop), ``network_thread`` (that runs it), ``in_flight_batches``,
``produce_errors`` (what a response means), ``batch_completion`` (who is told of a batch's end) and
``producer_failure`` (an error that ends the producer).
"""
