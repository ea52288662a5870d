"""Dead letters: which rows are too large or too old (``row_limits``), the conversion of bad rows to
dead letters (``letter_writer``), and reading a dead letter (``letter_fields``).
"""
