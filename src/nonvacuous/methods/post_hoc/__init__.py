"""Certifying noise around the weights of a trained network."""
