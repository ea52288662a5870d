"""The package's version, in a module that the build and all others can import alone."""

__version__ = "0.2.0"
