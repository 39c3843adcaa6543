"""Steps that synthesizers share: each module makes one kind of `Step`."""
