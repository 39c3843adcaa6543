"""PrivLava: groups of children by latent attributes, which noisy expectation-maximisation finds."""
