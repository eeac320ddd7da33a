"""One file per figure or table of a paper; ``cli/reproduce.py`` lists them."""
