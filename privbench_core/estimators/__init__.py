"""Estimators on released numbers: post-processing, without rows, noise or a curator."""
