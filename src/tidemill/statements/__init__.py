"""Statements: each is carried out here, always for its session."""
