"""The names of the options that the user has set, from every source.

Owns: ``given_options`` (the entry point), ``given`` (the result), ``config_file`` (the lines of a
file), ``unknown_options`` (the error for a wrong name), ``foreign_options`` (option names of other
software). Never: a value of an option (``cross_checks``).
"""
