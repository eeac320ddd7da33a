"""The plain test on examples that the network never saw."""
