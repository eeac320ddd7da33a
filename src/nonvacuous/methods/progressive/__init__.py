"""Training in steps, tested on each batch before it is learned from."""
