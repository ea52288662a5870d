"""Dead letters: limits of a row's size and time (``row_limits``), dead letters by columns
(``letter_writer``), and reading a dead letter (``letter_fields``).
"""
