"""Definitions take turns."""

from __future__ import annotations

import threading
from typing import Any

from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.statements.call import Call
from tidemill.statements.definitions.handlers import in_turn
from tidemill.statements.dispatch import parsed
from tidemill.statements.session import Session


def test_one_at_a_time_and_one_may_run_another() -> None:
    inside: list[int] = []
    most: list[int] = []
    pause = threading.Event()

    def drop(call: Call[Any]) -> Result:
        inside.append(1)
        most.append(len(inside))
        pause.wait(0.005)
        inside.pop()
        return done("DROP")

    def create(call: Call[Any]) -> Result:
        return handlers[st.DropTable](call)

    handlers = in_turn(({st.DropTable: drop}, {st.CreateTable: create}))
    (statement,) = parsed("DROP TABLE t")
    call = Call(statement, None, Session())
    threads = [
        threading.Thread(target=handlers[kind], args=(call,))
        for kind in (st.DropTable, st.CreateTable) * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 8
