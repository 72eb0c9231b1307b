"""Settings: durations, sizes, choices, and errors that help."""

from __future__ import annotations

import pytest

from tidemill.config import (
    DATABASE_SETTINGS,
    TABLE_SETTINGS,
    Settings,
    check,
    parse_duration_us,
    parse_size_bytes,
)
from tidemill.errors import SettingError


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("20 ms", 20_000),
        ("20ms", 20_000),
        ("1 millisecond", 1_000),
        ("5 us", 5),
        ("3 microseconds", 3),
        ("5 s", 5_000_000),
        ("5 seconds", 5_000_000),
        ("0.5 sec", 500_000),
        ("10 min", 600_000_000),
        ("10 m", 600_000_000),
        ("10 Minutes", 600_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("1h30m", 5_400_000_000),
        ("2 d", 172_800_000_000),
        ("2 weeks", 1_209_600_000_000),
    ],
)
def test_durations(text: str, us: int) -> None:
    assert parse_duration_us(text) == us


@pytest.mark.parametrize(
    "text", ["", " ", "5", "minutes", "5 fortnights", "-5 s", "5 s x", "1e9 s"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration_us(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("1", 1), ("2 GB", 2_000_000_000), ("1 MiB", 1 << 20), ("1.5kb", 1_500), ("64 mib", 64 << 20)],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_size_bytes(text) == count


def test_defaults_are_valid() -> None:
    for registry in (TABLE_SETTINGS, DATABASE_SETTINGS):
        settings = Settings(registry, {})
        assert set(settings) == set(registry)
    assert Settings(DATABASE_SETTINGS, {})["batch_interval"] == 20_000


def test_given_values_overlay_defaults() -> None:
    settings = Settings(TABLE_SETTINGS, {"hot": "5 minutes"})
    assert settings["hot"] == 300_000_000
    assert settings.text("hot") == "5 minutes"
    assert settings.text("late") == "accept"


def test_an_unknown_setting_suggests_the_nearest() -> None:
    with pytest.raises(SettingError) as caught:
        check(TABLE_SETTINGS, "retenton", "1 day")
    assert caught.value.hint == 'did you mean "retention"?'


@pytest.mark.parametrize(
    ("name", "value"),
    [("late", "maybe"), ("retention", "0 s"), ("memory", "10 kB"), ("memory", "lots"), ("hot", "")],
)
def test_a_bad_value_names_the_setting_and_its_default(name: str, value: str) -> None:
    with pytest.raises(SettingError) as caught:
        check(TABLE_SETTINGS, name, value)
    assert name in caught.value.message
    assert caught.value.hint is not None
    assert TABLE_SETTINGS[name].default in caught.value.hint
