"""The process that test_application kills: it feeds the road and says what was acknowledged.

``python feeder.py WAREHOUSE INPUT NUMBER`` opens a warehouse that has the application and feeds the
batches of an Arrow file, beginning with that number. After each it prints the number.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa
from warehouses import open_inline

from examples.linear_road import application

SOURCE = "road"


def main(warehouse: Path, given: Path, first: int) -> None:
    with open_inline(warehouse) as db, pa.memory_map(str(given)) as file:
        batches = pa.ipc.open_file(file)
        for number in range(first, batches.num_record_batches):
            application.feed(db, batches.get_batch(number), SOURCE)
            print(number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
