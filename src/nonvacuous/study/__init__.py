"""The engine of studies: cells computed once, here or on a cluster, and what becomes of them."""
