"""What the commands do, one module each, and how they speak: `cli` gives them names and options."""
