"""The times a table takes: years 0001 to 9999, which Python's datetime and most tools can show."""

from __future__ import annotations

TIME_US_MIN = -62_135_596_800_000_000
TIME_US_MAX = 253_402_300_799_999_999
