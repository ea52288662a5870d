"""One connection to a broker, and the selector that serves all connections (Java's ``KafkaChannel``
and ``Selector``).

* ``selectable``: the interface that the network client uses.
* ``selector``: implements this interface, and waits for events of all sockets.
* ``kafka_channel``: one connection.
* ``channel_builder``: creates the parts of a connection.
* ``poller``: calls epoll or poll.
* ``wakeup_pipe``: ends the wait of the selector.
"""
