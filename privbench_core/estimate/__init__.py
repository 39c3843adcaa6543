"""Pure arithmetic on released numbers: no rows, no noise, no curator."""
