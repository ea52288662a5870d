"""The version of the package. This module imports nothing, so the build can read the version
without importing the package.
"""

__version__ = "0.2.0"
