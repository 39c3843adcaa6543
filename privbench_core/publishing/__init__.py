"""The bundle that is given away: written whole or not at all, and loaded whole or not at all."""
