"""Dead letters: the limits of a row's size and timestamp (``row_limits``), the conversion of bad
rows to dead letters (``letter_writer``), and reading a dead letter (``letter_fields``).
"""
