"""Chooses the partitions of records, for thousands of rows in one pass.

Owns: ``partitioners`` (the built-in partitioners), ``own_partitioner`` (a user's class),
``key_rules`` (how each client library chooses a partition by the key; the hash functions are in
``murmur2``, ``murmur3``, ``crc32``, ``fnv1a`` and ``key_blocks``), ``few_leaders`` (a limit on the
leaders that a task writes to), ``topic_view`` (the facts about a topic that a partitioner needs).
"""
