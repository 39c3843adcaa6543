"""Groups of children of one owner: latent types (PrivLava), permutation marginals (PrivPetal), siblings."""
