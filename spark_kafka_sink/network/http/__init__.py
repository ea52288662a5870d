"""HTTP, for what is not Kafka: a bounded request (``http_exchange``), and the proxy on the way
(``http_proxy``). Never: a broker, what is requested.
"""
