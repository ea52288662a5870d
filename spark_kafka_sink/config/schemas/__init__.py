"""Options of formats with a schema, and of the registry (``schema_options``)."""
