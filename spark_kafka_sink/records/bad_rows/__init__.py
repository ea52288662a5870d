"""Rows that can't be sent: the reasons (``bad_rows``), and the limits that a topic sets
(``topic_limits``).
"""
