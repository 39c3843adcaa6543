"""Pure arithmetic on released numbers."""
