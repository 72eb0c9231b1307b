"""The warehouse folder: ``entering`` says which one may become a warehouse, and ``settings`` which
settings are properties of it."""
