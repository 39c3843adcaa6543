"""Internal reports: figures, plots and one self-contained HTML page. They show what rows look like: never published."""
