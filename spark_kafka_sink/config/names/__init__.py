"""The names of all options that the user has set, including the options in the ``configFile``.

``given_options`` is the entry point, and the module ``given`` has the class of its result.
``config_file`` reads the lines of a file. ``unknown_options`` creates the error for a wrong name.
``foreign_options`` has the option names of other software. ``cross_checks`` reads the values of the
options.
"""
