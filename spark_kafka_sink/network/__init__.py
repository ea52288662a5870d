"""Requests to brokers over non-blocking sockets. The only importer of socket, selectors and ssl."""
