"""Rows that can't be sent: reasons and masks (``bad_rows``), and the limits of a topic for a row
(``topic_limits``).
"""
