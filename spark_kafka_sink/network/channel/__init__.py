"""One connection, and the selector over all of them (Java's ``KafkaChannel`` and ``Selector``).

Owns: ``selectable`` (the seam to the client), ``selector`` (the only place that waits for sockets),
``kafka_channel`` with its ``channel_builder``, ``wakeup_pipe`` (how another thread ends the wait).
"""
