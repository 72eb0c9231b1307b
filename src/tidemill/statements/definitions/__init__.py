"""Definitions: CREATE, ALTER and DROP."""
