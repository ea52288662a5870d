"""HTTP requests to token endpoints and schema registries, with limits of time and size.

``http_exchange`` sends one request and reads the response. ``http_proxy`` chooses the proxy. The
callers create the content of a request. Connections to brokers do not use this package.
"""
