"""The page on MLflow and W&B: both keep what they are told, and what the page says of infinity."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.tools.pages import functions_of

import tightbudget as tb


@pytest.mark.needs
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # of MLflow, by SQLAlchemy
def test_mlflow_keeps_each_bound_to_the_last_bit_and_infinity_as_a_number(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="make tools: it needs MLflow")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = client.create_run(client.create_experiment("bounds", str(tmp_path)))
    values = [math.nextafter(1.8282366665168, math.inf), 1e-300, 5e-324, 0.1 + 0.2, math.inf]
    for step, value in enumerate(values):
        client.log_metric(run.info.run_id, "epsilon_upper", value, step=step)
    kept = [m.value for m in client.get_metric_history(run.info.run_id, "epsilon_upper")]
    assert kept[:-1] == values[:-1]
    assert math.isfinite(kept[-1])  # so the page's `both` refuses it


def test_no_infinite_epsilon_is_logged() -> None:
    (both,) = functions_of("track-epsilon.md", "both", math=math)
    assert both(tb.Bounds(0.1, 0.2)) == {"epsilon_lower": 0.1, "epsilon_upper": 0.2}
    with pytest.raises(ValueError, match=r"^there is no bound on epsilon: log none$"):
        both(tb.Bounds(0.0, math.inf))


@pytest.mark.needs
@pytest.mark.slow
def test_offline_wandb_begins_anew_and_drops_steps_from_the_past(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="make tools: it needs W&B")
    quiet = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True)
    epsilons = [0.1 + 0.2, 1.8282366665168]
    for piece in range(2):
        run = wandb.init(
            project="p", id="one", mode="offline", dir=tmp_path, settings=quiet, resume="allow"
        )
        assert (run.resumed, run.step) == (False, 0)
        run.log({"epsilon_upper": epsilons[piece]}, step=piece + 5)
        run.log({"epsilon_upper": 1 / 3}, step=1)
        run.finish()
    wandb.teardown()  # its process writes the files to their ends
    kept = b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*.wandb")))
    assert all(repr(epsilon).encode() in kept for epsilon in epsilons)
    assert repr(1 / 3).encode() not in kept


def test_a_function_that_a_page_no_longer_has_is_missed() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        functions_of("track-epsilon.md", "nowhere")
