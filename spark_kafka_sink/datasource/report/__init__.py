"""Reports: what one batch or micro-batch wrote, or why it was not written.

Owns, by file:

==================  ==================================================================
write_report        the value: :class:`WriteReport`, version 1, and its JSON
report_of_batch     makes it from commit messages, or from an error
failed_attempts     what attempts that fail leave for it
report_file         reports as files
retention           which of these are deleted
kept_reports        the last one of each query, kept on the driver
last_report         ``last_report``: reads that from the user's process
log_line            its line in the driver's log
destinations        the registry of destinations
==================  ==================================================================

Never: a decision whether a batch is committed. A report that can't be delivered is a warning.

A report is made on the driver, in the Python process in which Spark runs ``commit`` or ``abort``,
and passed to every destination once. **To receive reports, add a row to**
``destinations.DESTINATIONS``; a user's code is named by the option ``reportListeners``.
"""
