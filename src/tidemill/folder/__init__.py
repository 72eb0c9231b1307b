"""The warehouse folder."""
