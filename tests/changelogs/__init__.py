"""Delta Lake itself: the stream of a table's changes, through killed drivers, gives the table."""
