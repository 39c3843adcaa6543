"""What several test modules share: noise that can be seeded, recorded and replayed; neighbouring databases; bare plan runs."""
