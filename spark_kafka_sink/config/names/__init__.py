"""Checks the names of all options that the user has set, including the options in the
``configFile``.

* ``given_options``: the entry point.
* ``given``: the class of the result.
* ``config_file``: reads the lines of a file.
* ``unknown_options``: the error for a wrong name.
* ``foreign_options``: the option names of other software.
"""
