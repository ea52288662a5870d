"""HTTP requests to token endpoints and schema registries, with limits of time and size.

Owns: ``http_exchange`` (one request and its response) and ``http_proxy`` (the choice of the proxy).
Never: requests to brokers, the content of a request.
"""
