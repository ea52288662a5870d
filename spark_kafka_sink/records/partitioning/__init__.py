"""Which partition a record goes to, for thousands of rows at a time.

Owns: ``partitioners`` (by name), ``own_partitioner`` (a user's class), ``key_rules`` (what a key's
hash is, per client library) over ``murmur2``, ``murmur3``, ``crc32``, ``fnv1a`` and ``key_blocks``;
``topic_view`` is what a partitioner sees of a topic.
"""
