"""The thin layers, against the real packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous import bounds
from nonvacuous.cli.app import main
from nonvacuous.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]


def test_scikit_learn_on_breast_cancer() -> None:
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import cross_val_score, train_test_split
    from sklearn.tree import DecisionTreeClassifier

    inputs, labels = load_breast_cancer(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(inputs, labels, random_state=0)
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(train_x, train_y)
    report = nv.evaluate(model, (test_x, test_y), unseen=True)
    errors = int((model.predict(test_x) != test_y).sum())
    assert report.risk_upper == bounds.holdout(errors=errors, examples=len(test_y), failure=0.05)
    score = nv.sklearn.certified_scorer()(model, test_x, test_y)
    assert score == 1.0 - report.risk_upper
    folds = cross_val_score(model, train_x, train_y, scoring=nv.sklearn.certified_scorer(), cv=3)
    assert len(folds) == 3 and (folds > 0.7).all()


@pytest.mark.slow
def test_a_lightning_module() -> None:
    lightning = pytest.importorskip("lightning")
    import torch

    from nonvacuous.integrations.lightning import CertifiedTest

    class Sign(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def test_step(self, batch, index, dataloader_idx=0):
            inputs, labels = batch
            return {"predictions": (inputs[:, 0] > 0).long(), "labels": labels}

    inputs = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
    labels = (inputs[:, 0] > 0).long()
    labels[:6] = 1 - labels[:6]
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(inputs, labels), batch_size=32
    )
    test = CertifiedTest(unseen=True)
    trainer = lightning.Trainer(
        callbacks=[test], logger=False, enable_progress_bar=False, accelerator="cpu",
        enable_checkpointing=False, enable_model_summary=False,
    )  # fmt: skip
    (metrics,) = trainer.test(Sign(), loader, verbose=False)
    assert test.report.empirical.errors == 6 and test.report.status == "valid"
    assert metrics["risk_upper"] == pytest.approx(test.report.risk_upper)
    with pytest.raises(BadInput, match="test_step must return"):
        test.on_test_batch_end(trainer, None, None, None, 0)
    with pytest.raises(BadInput, match="test with one DataLoader"):
        trainer.test(Sign(), [loader, loader], verbose=False)


@pytest.mark.slow
def test_a_hugging_face_trainer(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    import torch

    from nonvacuous.integrations.transformers import CertifiedTest

    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config)
    generator = np.random.default_rng(0)
    rows = [
        {"input_ids": generator.integers(0, 20, 6).tolist(), "labels": int(i % 2)}
        for i in range(64)
    ]
    test = CertifiedTest(unseen=True)
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path), report_to=[], use_cpu=True, disable_tqdm=True
        ),
        eval_dataset=rows,
        compute_metrics=test,
        callbacks=[test],
    )
    metrics = trainer.evaluate()
    assert metrics["eval_risk_upper"] == test.report.risk_upper
    assert nv.Certificate.load(tmp_path / "certificate.json") == test.report
    assert test.report.empirical.trials == 64
    logits = transformers.EvalPrediction(np.ones((64, 1)), np.zeros(64, dtype=int))
    with pytest.raises(BadInput, match="one score for each input"):
        test(logits)


@pytest.mark.slow
def test_the_gate_of_the_example(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = ROOT / "examples" / "gate" / "predict.py"
    subprocess.run([sys.executable, str(script), "answers.csv"], check=True)
    command = ["evaluate", "answers.csv", "--group", "site", "--unseen"]
    gates = ["--max-risk", "0.10", "--max-group-risk", "0.25"]
    assert " ".join(gates) in (ROOT / "examples" / "gate" / "README.md").read_text()
    assert main([*command, *gates, "--out", "report"]) == 0
    assert main(["verify", "report"]) == 0
    assert main([*command, "--max-risk", "0.001"]) == 3
