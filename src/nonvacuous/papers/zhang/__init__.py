"""Zhang, Bengio, Hardt, Recht, Vinyals: Understanding deep learning requires rethinking
generalization (ICLR 2017)."""
