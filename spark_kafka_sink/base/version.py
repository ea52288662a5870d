"""The version of the package. This module has no imports, so that the build can load it without the
package.
"""

__version__ = "0.2.0"
