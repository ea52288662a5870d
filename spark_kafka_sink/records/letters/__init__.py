"""Dead letters: records in another topic, in place of rows that can't be sent.

``row_limits`` finds rows that are too large, or that have a timestamp outside of the topic's
limits. ``letter_writer`` converts rows to dead letters, and ``letter_fields`` reads a dead letter.
"""
