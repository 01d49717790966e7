"""``tightbudget compare``: our bounds beside other people's theorems."""

from __future__ import annotations

from typing import Annotated

from tightbudget import Bounds
from tightbudget.accounting.compare.compare import growing
from tightbudget.accounting.describe import in_words, two_ends
from tightbudget.cli.options import AsJson, Rtol, number
from tightbudget.cli.output import Stopwatch, growing_text, print_answer, print_rows, print_text
from tightbudget.cli.source import NamedComposition


def compare(
    source: NamedComposition,
    delta: Annotated[float | None, number("In (0, 1): compare epsilons.")] = None,
    epsilon: Annotated[float | None, number("At least 0, in nats: compare deltas.")] = None,
    rtol: Rtol = 1e-4,
    json: AsJson = False,
) -> None:
    """Compares our bounds with other people's theorems, at a delta or at an epsilon.

    For example: tightbudget compare laplace --scale 20 --steps 100 --delta 1e-5
    """
    watch = Stopwatch()
    composition = source.composition()
    comparisons = growing(composition, delta=delta, epsilon=epsilon, rtol=rtol)
    with growing_text("computing the other rows") as show:
        for found in comparisons:
            show(str(found))
    ours = found.rows[0].answer
    ends = two_ends([ours] if isinstance(ours, Bounds) else [])
    if json:
        content = {**found.to_dict(), **ends}
        print_answer(content, source.asked(delta=delta, epsilon=epsilon, rtol=rtol), watch)
        return
    print_rows({"what": in_words(composition), **ends})
    print_text(str(found))
    print_rows({"seconds": f"{watch.seconds:.2f}"})
