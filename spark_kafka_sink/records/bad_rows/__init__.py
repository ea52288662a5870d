"""Rows that can't be sent. ``bad_rows`` has the reasons, and ``topic_limits`` the limits that a
topic sets.
"""
