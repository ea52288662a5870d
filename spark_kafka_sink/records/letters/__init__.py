"""Dead letters: rows that are too large or too old (``row_limits``), letters by columns
(``letter_writer``), read back (``letter_fields``).
"""
