"""Chooses the partitions of records, for thousands of rows in one pass.

Owns: ``partitioners`` (the built-in partitioners), ``own_partitioner`` (a user's class),
``key_rules`` (the rules of the client libraries for the partition of a key), ``murmur2``,
``murmur3``, ``crc32`` and ``fnv1a`` (the hash functions), ``key_blocks`` (their input),
``few_leaders`` (a limit on the leaders that a task writes to), ``topic_view`` (the facts about a
topic that a partitioner needs).
"""
