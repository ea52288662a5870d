"""Side-by-side benchmarks: ours and the peers on one real broker, in one run (``make bench``)."""
