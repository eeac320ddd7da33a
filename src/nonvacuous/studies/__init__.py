"""What one asks of a data set or a network: the computation, the page and the words of each."""
