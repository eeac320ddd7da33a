"""The parts of :func:`nonvacuous.verify`: reading, arithmetic, run folder, data, fresh trials."""
