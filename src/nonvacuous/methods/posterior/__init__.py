"""Training a randomized network for the best certificate."""
