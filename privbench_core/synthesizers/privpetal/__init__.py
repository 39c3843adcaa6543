"""PrivPetal: children synthesized as groups, from normalised marginals of permutation relations."""
