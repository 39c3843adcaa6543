"""What noisy measurements are fitted into: sum-product networks whose leaves are marginals or pairwise models."""
