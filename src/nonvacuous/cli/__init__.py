"""The command line: one file per command, thin layers over the library."""
