"""Random bytes for everything that reads a broker's, a log's or a user's: ``make fuzz MINUTES=10``.

A target is a function of a random number generator that raises when a promise is broken, and says
in a word what became of the bytes: fuzz that is always refused at once reaches nothing. A case is a
target and a seed. ``test_fuzz.py`` runs the same few seeds of each in ``make test``.
"""
