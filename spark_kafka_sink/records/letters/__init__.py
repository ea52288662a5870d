"""Dead letters. ``row_limits`` finds rows that are too large or too old, ``letter_writer`` converts
bad rows to dead letters, and ``letter_fields`` reads a dead letter.
"""
