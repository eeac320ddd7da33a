"""certify: the one call. Orchestration, no mathematics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nonvacuous.bounds import checks
from nonvacuous.certificate import Certificate
from nonvacuous.certification import run_folder
from nonvacuous.certification.adapting import PROBABILITIES, TOKENS, adapted
from nonvacuous.certification.assemble import refuse_beforehand
from nonvacuous.certification.beginning import beginning
from nonvacuous.certification.job import Charging, Job
from nonvacuous.certification.method import Method
from nonvacuous.claims import in_own_folder
from nonvacuous.data import Dataset, Examples, Standardize, check_examples
from nonvacuous.distributions.attributes import attribute_tensors
from nonvacuous.errors import BadInput
from nonvacuous.kinds import KINDS
from nonvacuous.methods import Posterior
from nonvacuous.models import specification_of
from nonvacuous.progress import Progress
from nonvacuous.recipes import seeded
from nonvacuous.risk.losses import Loss, check_name, zero_one
from nonvacuous.rules.attempts import Attempt, ledger_beside
from nonvacuous.rules.digests import all_examples_digest, content_digest, tensors_digest
from nonvacuous.rules.outcomes import class_sizes
from nonvacuous.settings import Run
from nonvacuous.training.events import EventLog
from nonvacuous.verification.run_folder import check_before_sealing

_TRAINED_HERE = Posterior()


@in_own_folder(run_folder.CONFIG)
def certify(
    model: nn.Module | Callable[[], nn.Module],
    train: Any,
    *,
    method: Method = _TRAINED_HERE,
    confidence: float = 0.95,
    seed: int = 0,
    test: Any = None,
    loss: Loss = zero_one,
    attempts: int = 1,
    folder: str | Path | Run | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Certificate:
    """How wrong can this network be on data it has not seen? A number, and its evidence.

    model        the network, on the device to compute on. With :class:`~nonvacuous.Posterior` and
                 :class:`~nonvacuous.Progressive`, and with :class:`~nonvacuous.Sparsity` without a
                 prior of ``nv.priors``, its present weights are the starting point and must not
                 have seen ``train``; otherwise it is the trained network to be certified. It is
                 not changed. A function without arguments that builds the network shows that a
                 seed decides its weights: it is called under ``seed``, and again by the audit; so
                 do the built-in networks of :func:`nonvacuous.models.build`. Without that, or a
                 word on where pretrained weights come from (``nv.Posterior(pretrained=...)``),
                 certificates are conditional
    train        the examples: a pair (inputs, labels), the path of a file, a frame of pandas with a
                 label column, a torch dataset, or what :func:`nonvacuous.data.load` gives, with its
                 test part
    method       which promise, and how it is made: ``nv.Posterior()`` trains a randomized network
                 for the best certificate; ``nv.PostHoc(prior=...)`` certifies noise around the
                 given weights; ``nv.Sparsity()`` one fixed network; ``nv.Progressive()`` tests
                 checkpoints on each batch before training on it; ``nv.HeldOut()`` takes ``train``
                 as a plain test, with examples that the model never saw
    confidence   1 minus the probability, over the draw of the data, that the claim is false
    test         examples that are only looked at once, at the very end, beside the promise
    attempts     how many certificates will be computed on these examples, with whatever settings,
                 seeds and splits: reporting the best of them is honest only if the confidence is
                 shared among them; the ledger of :class:`~nonvacuous.Run` remembers them
    folder       a run folder: everything needed to check, resume and report the certificate; or
                 :class:`~nonvacuous.Run` with names for the network and the data
    resume       go on with a run that was stopped, in the same folder, with the same settings and
                 the same network
    force        overwrite the run in the folder
    """
    if not isinstance(method, Method):
        raise BadInput(
            f"method must be nv.Posterior(), nv.PostHoc(prior=...), nv.Sparsity(), "
            f"nv.Progressive() or nv.HeldOut(), not {method!r}"
        )
    builds = callable(model) and not isinstance(model, nn.Module) and not hasattr(model, "predict")
    if builds and not KINDS[method.mode].given:
        model = seeded(model, seed=checks.count("seed", seed))
    failure = checks.failure_of(confidence)
    checks.count("attempts", attempts, minimum=1)
    run = Run.of(folder)
    dataset = Dataset.of(train)
    examples, test = dataset.train, dataset.test if test is None else test
    check_examples(examples, every_class=False)  # a test part may lack one
    given = examples  # before any preprocessing here: the same data with all methods
    if not isinstance(loss, Loss):
        raise BadInput(f"loss must be a loss of the library, such as nv.zero_one, not {loss!r}")
    check_name(loss)
    if (loss.lower, loss.upper) != (0.0, 1.0):
        raise BadInput(
            f"the loss {loss.name!r} ranges over [{loss.lower}, {loss.upper}]; bounds hold for "
            "losses in [0, 1]: scale it"
        )
    examples = method.prepare(examples)
    tested = None
    if test is not None:  # with the classes of the others, of which it may lack some
        names = examples.class_names
        tested = test if isinstance(test, Examples) else Examples.of(test, class_names=names)
        if tested.class_names != names:
            raise BadInput(
                f"{tested.name} and {examples.name} name different classes, "
                f"{tested.class_names[:8]} and {names[:8]}; give both the same class_names"
            )
        tested = method.prepare(tested)
    model, conversions = adapted(model, examples)
    if PROBABILITIES in conversions and loss.name != "zero-one":
        raise BadInput(
            f"the network returns probabilities, and the loss {loss.name!r} reads scores, to which "
            "it applies a softmax of its own: leave the network's softmax out, or the loss"
        )
    if TOKENS in conversions and getattr(method, "standardize", False):
        raise BadInput(
            "standardize would turn the whole numbers that the network looks up into fractions; "
            "leave it out, and the recipe 'tables', which sets it"
        )
    method.check(model, loss)
    split = method.split_of(examples, checks.count("seed", seed))
    split.check_fits(examples)
    if getattr(method, "standardize", False):  # which examples do what stays as it was decided
        fitted = Standardize.fit(examples.subset(split.prior))
        examples, tested = fitted(examples), None if tested is None else fitted(tested)
        split = replace(split, content=examples.content_hash())
    configuration: dict[str, Any] = {
        "format": run_folder.FORMAT,
        "mode": method.mode,
        "confidence": confidence,
        "seed": seed,
        "attempts": attempts,
        "loss": loss.name,
        "architecture": run.architecture
        or specification_of(model, examples.inputs, examples.classes)
        or type(model).__qualname__,
        "source": run.source or examples.name,
        "data_name": examples.name,
        "preprocessing": examples.steps,
        "weights": tensors_digest(dict(model.state_dict())),
        "examples": examples.content_hash(),
        "split": split.digest(),
        "method": method.record(),
    }
    if run.different_data is not None:
        configuration["different_data"] = run.different_data.strip()
    attributes = attribute_tensors(model)
    if attributes:  # what no list of weights has
        configuration["attributes"] = tensors_digest(attributes)
    kept = run_folder.RunFolder(run.folder)
    if kept.path is not None and (begins := beginning(model, examples)):
        configuration[run_folder.BEGINNING] = begins
    configuration = dict(kept.open(configuration, resume=resume, force=force))
    if finished := kept.existing("certificate.json"):
        kept.drop_checkpoints()
        return Certificate.load(finished)
    charging = None
    ledger = run.ledger if kept.path is None else run.ledger or ledger_beside(kept.path)
    if ledger is not None:
        gate = str(getattr(method, "threshold", None) or "no gate")
        attempt = Attempt(
            examples=all_examples_digest(given),
            bound=content_digest(examples, split.bound),
            config=run_folder.settings_digest(configuration),
            paid=attempts,
            classes=class_sizes(given),
            different=configuration.get("different_data", ""),
            threshold=gate if KINDS[method.mode].steps else "",
        )
        charging = Charging(ledger, attempt, model, examples.subset(split.bound))
        progress = charging.watching(progress)
    parameter = next(model.parameters(), None)
    events_file = kept.file("events.jsonl")
    job = Job(
        method=method,
        architecture=configuration["architecture"],
        conversions=conversions,
        examples=examples,
        test=tested,
        split=split,
        loss=loss,
        failure=failure,
        attempts=attempts,
        seed=seed,
        device=torch.device("cpu") if parameter is None else parameter.device,
        folder=kept,
        progress=progress,
        events=None if events_file is None else EventLog(events_file),
        tensorboard=run.tensorboard,
        charging=charging,
    )
    refuse_beforehand(job, model)
    kept.write("split.npz", split.save)
    certificate = method.make(job, model)
    if kept.path is not None:
        settings = run_folder.to_toml(configuration)
        check_before_sealing(method.checking(), certificate, kept.path, settings)
        kept.write("certificate.json", certificate.save)
        kept.drop_checkpoints()
    return certificate
