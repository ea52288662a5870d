"""Chooses the partitions of records, for thousands of rows in one pass.

``partitioners`` has the built-in partitioners, and ``own_partitioner`` calls a user's class.
``key_rules`` has the rules of the client libraries for the partition of a key. ``murmur2``,
``murmur3``, ``crc32`` and ``fnv1a`` are the hash functions, and ``key_blocks`` prepares their
input. ``few_leaders`` limits the number of leaders that a task writes to. ``topic_view`` has the
facts about a topic that a partitioner needs.
"""
