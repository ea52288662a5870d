"""The whole producer, single-threaded, on simulated time, over a network that does its worst.

``python -m tests.simulation --seeds 20000`` (``make simulate SEEDS=20000``) lives that many lives;
``--from K --seeds 1 --trace`` replays one. What is simulated is what is outside the producer:
time (``scheduler.py``), the network (``tests/fakes/simulated_network.py``) and the brokers. The
producer is the one that users get: KafkaProducer, RecordAccumulator, BufferPool, Sender,
TransactionManager, Metadata, NetworkClient.
"""
