"""One connection to a broker, and the selector that serves all connections (Java's ``KafkaChannel``
and ``Selector``).

Owns: ``selectable`` (the interface that the network client uses), ``selector`` (waits for events of
all sockets), ``kafka_channel`` (a connection), ``channel_builder`` (creates a connection's parts),
``poller`` (epoll or poll), and ``wakeup_pipe`` (ends the wait of the selector).
"""
