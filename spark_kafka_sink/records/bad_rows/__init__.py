"""Rows that can't be sent: reasons and masks (``bad_rows``), and a topic's limits
(``topic_limits``).
"""
