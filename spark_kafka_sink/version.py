"""The package's version, where the build and everything that imports nothing else finds it."""

__version__ = "0.1.0"
