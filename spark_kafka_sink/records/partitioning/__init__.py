"""Chooses the partitions of records, for thousands of rows in one pass.

Owns: ``partitioners`` (by name), ``own_partitioner`` (a user's class), ``key_rules`` (the hash of a
key, by client library) over ``murmur2``, ``murmur3``, ``crc32``, ``fnv1a`` and ``key_blocks``;
``few_leaders`` (the leaders of a task); ``topic_view``, the input data of a topic.
"""
