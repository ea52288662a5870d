"""Chooses the partitions of records, for thousands of rows in one pass.

Owns: ``partitioners`` (the built-in partitioners), ``own_partitioner`` (a user's class),
``key_rules`` (the hash of a key in each client library; the hashes are in ``murmur2``, ``murmur3``,
``crc32``, ``fnv1a`` and ``key_blocks``), ``few_leaders`` (the leaders of a task), ``topic_view``
(the data of a topic that a partitioner needs).
"""
