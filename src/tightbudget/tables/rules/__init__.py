"""Rules on rows: expressions of Ibis that look at one row alone, and cannot fail for any record.

A rule is what a user gives to ``Table.filter``, ``Table.mutate`` or ``where=``. Three things must
hold of it, and each is decided while a release is planned, before the budget is touched:

1. It looks at one row of one table alone. Otherwise one unit would change what other rows count.
2. It fails for no record. An error, or a scan that ends early, would tell that a record is there.
3. It has the same value on every engine. Otherwise a table that moves would change its answers.

Ibis promises none of them. So an expression is read operation by operation, and is built anew from
the operations in ``OPERATIONS``. An operation that is not in this table is refused, also one that a
later Ibis adds. The tests try every allowed operation on DuckDB, PostgreSQL and Polars, with
missing, infinite, huge, tiny and odd values.

**Numbers.** Integers and doubles are kept apart. Comparisons of integers are exact, also of those
beyond int64 (uint64, and decimals of up to 38 digits without a fraction). Arithmetic is in doubles,
with the operations that IEEE 754 defines to the last bit: ``+ - * /``, square roots and floors. NaN
is a missing number (NULL), since engines order NaN differently. Before arithmetic, a column is
moved into [-2^200, 2^200], and numbers below 2^-200 become 0. From there on magnitudes are followed
through the expression. An expression whose value could overflow or underflow is refused, since
PostgreSQL ends a query there. A division by 0 and the square root of a negative number are missing.
Zeros of both signs are equal, and no operation tells them apart.

**Missing values.** They are those of SQL: a comparison with NULL is NULL. A condition that is NULL
counts as False.
"""

from tightbudget.tables.rules.binding import Called
from tightbudget.tables.rules.resolve import Kind, resolved, written

__all__ = ["Called", "Kind", "resolved", "written"]
