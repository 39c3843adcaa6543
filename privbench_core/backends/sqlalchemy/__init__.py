"""Any other database that SQLAlchemy speaks to: catalogue and reader."""
