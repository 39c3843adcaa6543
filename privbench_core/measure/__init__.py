"""The only spenders: everything here holds a curator and pays for what it asks."""
