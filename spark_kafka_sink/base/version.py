"""The version of the package. This module imports nothing, so that the build can read the version
without the package.
"""

__version__ = "0.2.0"
