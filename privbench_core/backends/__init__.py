"""Databases, files and folders: catalogue, reading, DDL and loading of each, together."""
