"""Brokers other than the two that each change is tested on, and other PySparks: ``make compat``."""
