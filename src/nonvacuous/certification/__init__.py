"""The stages behind :func:`nonvacuous.certify`, one file each."""
