"""What several test modules share: replayed noise, neighbouring databases, bare plan runs, the audit."""
