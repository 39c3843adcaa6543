"""Foreign keys: how many children parents have, and which parent a row refers to; measured, estimated, drawn."""
