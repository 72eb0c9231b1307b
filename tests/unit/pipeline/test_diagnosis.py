"""What kept Spark from starting, said in a sentence."""

from __future__ import annotations

import pytest

from tidemill.pipeline.diagnosis import diagnose

NOISE = """\
WARNING: Using incubator modules: jdk.incubator.vector
26/11/18 10:00:00 WARN Utils: Your hostname resolves to a loopback address
	at org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)
"""


@pytest.mark.parametrize(
    ("log", "words", "may_retry"),
    [
        ("Error occurred during initialization of VM\nCould not reserve enough space", "memory", 0),
        ("There is insufficient memory for the Java Runtime Environment", "memory", 0),
        ("java.lang.UnsupportedClassVersionError: org/apache/spark", "too old", 0),
        ("java.net.BindException: Cannot assign requested address", "loopback", 1),
        ("SparkException: Could not parse Master URL: 'here'", "master", 0),
        ("All masters are unresponsive! Giving up.", "does not answer", 1),
        ("Unrecognized VM option 'UseMagic'", "options", 0),
        ("java.io.IOException: No space left on device", "disk is full", 0),
    ],
)
def test_what_is_known_is_named(log: str, words: str, may_retry: int) -> None:
    found = diagnose(NOISE + log, 1)
    assert words in found.detail
    assert found.may_retry == bool(may_retry)
    assert found.hint


def test_the_rest_is_one_line_without_noise() -> None:
    found = diagnose(NOISE + "2026-11-18 10:00:00 ERROR Main: it went wrong\n\tat x.y(z)", 1)
    assert found.detail == "it went wrong"
    assert diagnose(NOISE, 7).detail == "Java ended with exit code 7 and said nothing"
    assert "killed" in diagnose(NOISE, -9).detail
    assert "does nothing" in diagnose(NOISE, -9, is_stalled=True).detail
