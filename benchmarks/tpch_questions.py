"""TPC-H's queries 1, 3, 6, 15 and 20 over a stream of line items, without ORDER BY and LIMIT.

A question has two parts, which together are one SQL text: ``grouped`` groups the stream (joined, in
query 3, with tables that do not change), ``above`` makes the answer from the groups. Queries 15 and
20 are written so that the stream is grouped first, as document 004 (§4.3.2) does; every system
gets this form. Systems that want the parts one by one, as Spark's streams do, take them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StreamQuestion:
    """``grouped`` is a SELECT; ``above`` one over the relation ``grouped``, if there is more."""

    name: str
    grouped: str
    above: str | None = None

    @property
    def sql(self) -> str:
        """
        >>> StreamQuestion("", "SELECT 1 AS n", "SELECT n + 1 FROM grouped").sql
        'WITH grouped AS (SELECT 1 AS n) SELECT n + 1 FROM grouped'
        """
        return (
            self.grouped if self.above is None else f"WITH grouped AS ({self.grouped}) {self.above}"
        )


QUESTIONS = (
    StreamQuestion(
        "Q1",
        "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, "
        "sum(l_extendedprice) AS sum_base_price, "
        "sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, "
        "sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, "
        "avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, "
        "avg(l_discount) AS avg_disc, count(*) AS count_order FROM lineitem "
        "WHERE l_shipdate <= TIMESTAMP '1998-09-02 00:00:00' "
        "GROUP BY l_returnflag, l_linestatus",
    ),
    StreamQuestion(
        "Q3",
        "SELECT l_orderkey, o_orderdate, o_shippriority, "
        "sum(l_extendedprice * (1 - l_discount)) AS revenue "
        "FROM lineitem JOIN orders ON l_orderkey = o_orderkey "
        "JOIN customer ON c_custkey = o_custkey WHERE c_mktsegment = 'BUILDING' "
        "AND o_orderdate < DATE '1995-03-15' AND l_shipdate > TIMESTAMP '1995-03-15 00:00:00' "
        "GROUP BY l_orderkey, o_orderdate, o_shippriority",
    ),
    StreamQuestion(
        "Q6",
        "SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem "
        "WHERE l_shipdate >= TIMESTAMP '1994-01-01 00:00:00' "
        "AND l_shipdate < TIMESTAMP '1995-01-01 00:00:00' "
        "AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    ),
    StreamQuestion(
        "Q15",
        "SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS revenue "
        "FROM lineitem WHERE l_shipdate >= TIMESTAMP '1996-01-01 00:00:00' "
        "AND l_shipdate < TIMESTAMP '1996-04-01 00:00:00' GROUP BY l_suppkey",
        "SELECT s_suppkey, s_name, s_address, s_phone, revenue "
        "FROM supplier JOIN grouped ON s_suppkey = supplier_no "
        "WHERE revenue = (SELECT max(revenue) FROM grouped)",
    ),
    StreamQuestion(
        "Q20",
        "SELECT l_partkey, l_suppkey, sum(l_quantity) AS quantity FROM lineitem "
        "WHERE l_shipdate >= TIMESTAMP '1994-01-01 00:00:00' "
        "AND l_shipdate < TIMESTAMP '1995-01-01 00:00:00' GROUP BY l_partkey, l_suppkey",
        "SELECT s_name, s_address FROM supplier JOIN nation ON s_nationkey = n_nationkey "
        "WHERE n_name = 'CANADA' AND s_suppkey IN (SELECT ps_suppkey FROM partsupp "
        "JOIN part ON ps_partkey = p_partkey "
        "JOIN grouped ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey "
        "WHERE p_name LIKE 'forest%' AND ps_availqty > 0.5 * quantity)",
    ),
)
