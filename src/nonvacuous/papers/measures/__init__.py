"""Jiang et al.: Fantastic generalization measures and where to find them (ICLR 2020), and Dziugaite
et al.: In search of robust measures of generalization (NeurIPS 2020)."""
