"""Internal reports: plots and one self-contained HTML page. They show private rows, and are never published."""
