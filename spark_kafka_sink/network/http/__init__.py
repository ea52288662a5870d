"""HTTP requests to token endpoints and schema registries, bounded in time and size.

Owns: ``http_exchange`` (one request) and ``http_proxy`` (the proxy to use). Never: a broker, the
content of a request.
"""
