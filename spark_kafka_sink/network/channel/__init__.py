"""One connection, and the selector over all of them (Java's ``KafkaChannel`` and ``Selector``).

Owns: ``selectable`` (the interface to the client), ``selector`` (the only place that waits for
sockets), ``kafka_channel`` with its ``channel_builder``, ``wakeup_pipe`` (wakes up the selector).
"""
