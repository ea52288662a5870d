"""The version of the package, in a module without imports, which the build can load alone."""

__version__ = "0.2.0"
