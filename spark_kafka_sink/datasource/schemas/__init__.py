"""Schemas of keys and values, at planning: the types of columns (``column_types``), and which
schema with which id (``payload_schemas``). Never: Arrow, a row, a task.
"""
