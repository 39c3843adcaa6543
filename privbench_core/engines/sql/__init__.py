"""Views as SQL: written once as expressions, and spelled for each database that runs them."""
