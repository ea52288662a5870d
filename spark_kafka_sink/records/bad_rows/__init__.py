"""Rows that can't be sent. ``bad_rows`` collects these rows with their reasons, and
``topic_limits`` has the limits that a topic sets for records.
"""
