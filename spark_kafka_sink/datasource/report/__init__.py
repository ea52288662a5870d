"""Reports: what one batch or micro-batch wrote, or why it was not written.

Owns, by file:

==================  ==================================================================
write_report        the value: :class:`WriteReport`, version 1, and its JSON
report_of_batch     how it is made: of commit messages, or of an error
report_file         reports as files
kept_reports        the last one of each query, for who asks on the driver
last_report         ``last_report``: who asks, from anywhere
log_line            its one line in the driver's log
destinations        where it goes: the one registry of destinations
==================  ==================================================================

Never: a decision whether a batch is committed. A report that can't be delivered is a warning.

A report is made on the driver, in the Python process in which Spark runs ``commit`` or ``abort``,
and handed to every destination once. **Whoever wants reports adds a row to**
``destinations.DESTINATIONS``; a user's own code is named by the option ``reportListeners``.
"""
