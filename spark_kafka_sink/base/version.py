"""The package's version, where the build and everything that imports nothing else finds it."""

__version__ = "0.2.0"
