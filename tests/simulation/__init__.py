"""The whole producer, single-threaded, on simulated time, over a network that does its worst.

``python -m tests.simulation --seeds 20000`` (``make simulate SEEDS=20000``) lives that many lives;
``--from K --seeds 1 --trace`` replays one. What is simulated is what is outside the producer:
time (``scheduler.py``), the network (``tests/fakes/simulated_network.py``) and the brokers. The
producer is the one that users get: KafkaProducer, RecordAccumulator, BufferPool, Sender,
TransactionManager, Metadata, NetworkClient.

Spark's side is the files that begin with ``spark_``. ``spark_world.py`` has what both kinds of life
share: a scene (``scene.py``), whose every step a test writes, and an
application (``spark_application.py``), which a seed draws (``spark_lives.py``). Of that one,
``spark_application_life.py`` and ``spark_misfortunes.py`` decide before it begins,
``spark_disturbances.py`` is what is done to it, ``spark_observer.py`` what is seen meanwhile, and
``spark_invariants.py`` judges at the end. ``spark_sink.py`` calls the sink as Spark does.
"""
