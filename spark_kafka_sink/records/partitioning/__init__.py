"""Chooses the partitions of records, for thousands of rows in one pass.

* ``partitioners``: the built-in partitioners.
* ``own_partitioner``: calls a user's class.
* ``key_rules``: the rules of the client libraries for the partition of a key.
* ``murmur2``, ``murmur3``, ``crc32``, ``fnv1a``: the hash functions.
* ``key_blocks``: prepares the input of the hash functions.
* ``few_leaders``: limits the number of leaders that a task writes to.
* ``topic_view``: the facts about a topic that a partitioner needs.
"""
