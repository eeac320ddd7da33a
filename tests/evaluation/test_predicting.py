"""Inference on a cluster: the same counts, also when a machine is lost on the way."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous.cli.app import main

ray = pytest.importorskip("ray")

MODULE = """
import time
import numpy as np

def predict(inputs):
    time.sleep(0.02)
    return (np.asarray(inputs)[:, 0] > 0).astype(int)
"""


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    # The head computes too, so that one machine may be lost. What nobody looks at stays off.
    head = {"num_cpus": 1, "include_dashboard": False}
    machines = Cluster(initialize_head=True, head_node_args=head)
    worker = machines.add_node(num_cpus=1)
    ray.init(address=machines.address, log_to_driver=False)
    yield machines, worker
    ray.shutdown()
    machines.shutdown()


@pytest.mark.slow
def test_a_million_inferences_with_a_worker_lost(cluster, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("shard_predictor.py").write_text(MODULE)
    import shard_predictor

    from nonvacuous.evaluation.predicting import OnRay

    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(1_000_000, 2)).astype(np.float32)
    labels = (inputs[:, 0] + 0.1 * generator.normal(size=1_000_000) > 0).astype(int)
    machines, worker = cluster

    def lose_one() -> None:
        time.sleep(1.5)
        machines.remove_node(worker, allow_graceful=False)

    thread = threading.Thread(target=lose_one)
    thread.start()
    sharded = nv.evaluate(OnRay(shard_predictor.predict), (inputs, labels), unseen=True)
    thread.join()
    answers = (inputs[:, 0] > 0).astype(int)
    local = nv.evaluate(predictions=answers, labels=labels, unseen=True)
    assert sharded.evaluation.digests == local.evaluation.digests
    assert sharded.evaluation.groups == local.evaluation.groups
    assert sharded.risk_upper == local.risk_upper


@pytest.mark.slow
def test_the_command_answers_here_and_on_ray(cluster, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_predictor.py").write_text(MODULE)
    inputs = np.random.default_rng(0).normal(size=(500, 2))
    labels = (inputs[:, 0] > 0.05).astype(int)
    np.savez("rows.npz", inputs=inputs, label=labels, site=np.array(["A", "B"] * 250))
    command = ["evaluate", "rows.npz", "--predictor", "own_predictor:predict", "--unseen"]
    command += ["--group", "site"]
    assert main(command) == 0
    here = capsys.readouterr().out
    assert main([*command, "--engine", "ray"]) == 0
    assert capsys.readouterr().out == here and here.startswith("VALID")
    assert main(["evaluate", "rows.npz", "--predictor", "nowhere:predict"]) == 2
