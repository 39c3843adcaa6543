"""What comes after a bundle: rows of the next days, made from the bundle alone, as a stream of inserts."""
