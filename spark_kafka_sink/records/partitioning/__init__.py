"""The choice of a record's partition, for thousands of rows at a time.

Owns: ``partitioners`` (by name), ``own_partitioner`` (a user's class), ``key_rules`` (the hash of a
key, by client library) over ``murmur2``, ``murmur3``, ``crc32``, ``fnv1a`` and ``key_blocks``;
``topic_view`` is the data of a topic for a partitioner.
"""
