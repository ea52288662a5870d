"""Rows that can't be sent: reasons and masks (``bad_rows``), and what a topic accepts of a row
(``topic_limits``).
"""
