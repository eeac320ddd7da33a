"""``nonvacuous certify``: from a network and data to a certificate, in one command.

Its flags are those of every call and, made from their fields, those of the methods. No torch here:
a mistake is named before anything is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from pydantic import BaseModel, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo

from nonvacuous.bounds import checks
from nonvacuous.certification.method import Method
from nonvacuous.cli import flags
from nonvacuous.cli.exits import UsageError, as_usage
from nonvacuous.foreign import SOURCES
from nonvacuous.kinds import KINDS, LEARNED, PRIOR_NAMES, Mode, prior_kind
from nonvacuous.methods import METHODS, HeldOut, Posterior, PostHoc, Progressive, Sparsity
from nonvacuous.settings import Flag, flags_of, from_flags, in_words

_GROUPS = {
    name: Group.create_ordered(name)
    for name in ("What is certified", "The promise", "With --mode sparsity", "Training", "The run")
}
_WHAT = Parameter(group=_GROUPS["What is certified"])
_PROMISE = Parameter(group=_GROUPS["The promise"])
_RUN = Parameter(group=_GROUPS["The run"])


@Parameter(name="*")
@dataclass(frozen=True)
class Call:
    """What every call of the command has, whatever the method.

    Args:
        classes: Names of the classes in the order of the network's scores, as in cat,dog; by
            default in the order of the alphabet.
        model: mlp:WIDTHS, cnn:CHANNELS or cnn:CHANNELS/WIDTHS, with /no-bias at the end without
            biases; resnet, resnet9, vit, scatter, alexnet, inception, or inception:no-bn without
            batch normalization; or package.module:function, called without arguments, returning a
            torch.nn.Module (the current folder is searched too). By default cnn:32,64 for images
            and mlp:256 for other inputs; in --mode sparsity mlp:100/no-bias.
        weights: Weights of a trained network to certify: a safetensors file as
            safetensors.torch.save_file(model.state_dict(), path) writes it.
        initial: The same network's weights before training, as safetensors: the prior of given
            --weights.
        init_seed: Seed of the initial weights; the --seed by default.
        part: Which part of the data --mode holdout tests on, one that the network never saw: the
            test part, unless said otherwise.
        mode: posterior: train a randomized network for a good certificate (default). post-hoc:
            certify noise around given --weights (default with --weights). sparsity: certify one
            fixed network of linear layers or convolutions with ReLU, trained here or given.
            holdout: the plain test of --weights on examples that they never saw. progressive: train
            in steps, each batch a test before it is learned from; about the predictor that draws
            one of the checkpoints.
        confidence: Of many data sets, at least this share would yield a true claim.
        attempts: How many certificates you will compute on these examples, to report the best of
            them: they share the confidence.
        different_data: Where the ledger has examples with the same labels: why these are other
            data, in a sentence that the certificate quotes.
        max_risk: Exit with code 3 if the certificate is above this, refused, conditional or vacuous
            (not shown to be better than always answering one class): a gate for CI. In --mode
            progressive it is the --threshold, declared before training: below it, or no promise.
        allow_conditional: Let a conditional certificate pass --max-risk.
        seed: Everything random follows from it.
        device: auto takes the GPU if torch sees one.
        threads: Processor threads for torch; its own choice by default.
        out: The run folder; runs/DATA-MODEL-seedN by default.
        resume: Go on with a run that was stopped, in the same folder and with the same settings.
        force: Overwrite the run in the folder.
        report: Write report.html beside the certificate.
        tensorboard: A folder for TensorBoard to read training from, if that package is installed.
        config: TOML file with settings named like these flags. Flags come first, then variables
            such as NONVACUOUS_SEED, then this file, then the defaults.
    """

    data: Annotated[str, _WHAT, Parameter(help=SOURCES)]
    data_dir: Annotated[flags.DataDir, _WHAT] = None
    classes: Annotated[str | None, _WHAT] = None
    model: Annotated[str | None, _WHAT] = None
    weights: Annotated[Path | None, _WHAT] = None
    initial: Annotated[Path | None, _WHAT] = None
    init_seed: Annotated[flags.OptionalWholeNumber, _WHAT] = None
    part: Annotated[Literal["train", "test"] | None, _WHAT] = None
    mode: Annotated[Mode | None, _PROMISE] = None
    confidence: Annotated[float, _PROMISE] = 0.95
    attempts: Annotated[flags.WholeNumber, _PROMISE] = 1
    different_data: Annotated[str | None, _PROMISE] = None
    max_risk: Annotated[float | None, _PROMISE] = None
    allow_conditional: Annotated[bool, _PROMISE, flags.SWITCH] = False
    seed: Annotated[flags.WholeNumber, _RUN] = 0
    device: Annotated[Literal["cpu", "cuda", "auto"], _RUN] = "auto"
    threads: Annotated[flags.OptionalWholeNumber, _RUN] = None
    out: Annotated[Path | None, _RUN] = None
    resume: Annotated[bool, _RUN, flags.SWITCH] = False
    force: Annotated[bool, _RUN, flags.SWITCH] = False
    report: Annotated[bool, _RUN] = True
    tensorboard: Annotated[Path | None, _RUN] = None
    config: Annotated[Path | None, _RUN] = None
    ledger: Annotated[flags.Ledger, _RUN] = None
    json: Annotated[flags.Json, _RUN] = False

    def check(self) -> None:
        """Raise a usage error where a number is out of range, or two flags exclude one another."""
        flags.failure_of(self.confidence)
        least = {"init_seed": 0, "attempts": 1, "seed": 0, "threads": 1}
        flags.check_counts(
            {flags.dashed(name): (getattr(self, name), low) for name, low in least.items()}
        )
        with as_usage():
            if self.max_risk is not None:
                checks.unit_interval("--max-risk", self.max_risk)
        flags.check_one_of("run", resume=self.resume, force=self.force)
        if self.allow_conditional and self.max_risk is None:
            raise UsageError("--allow-conditional speaks of --max-risk: give it too.")


#: Flags of a method by name, those that were given.
Given = dict[str, Any]


def _method_flags() -> type[BaseModel]:
    """A model with every flag of every method, all of them left open: None says not given."""
    known: dict[str, list[tuple[Flag, FieldInfo]]] = {}
    for kind in METHODS.values():
        for name, flag, field in flags_of(kind):
            known.setdefault(name, []).append((flag, field))
    fields: dict[str, Any] = {}
    for name, uses in known.items():
        flag, field = uses[0]
        texts = dict.fromkeys(flag.help for flag, _ in uses)
        defaults = {field.default for _, field in uses if not field.is_required()}
        shown = defaults.pop() if len(defaults) == 1 and len(texts) == 1 else None
        words, group = " ".join(texts), _GROUPS[flag.group]
        fields[name] = (flags.left_open(field.annotation, shown, help=words, group=group), None)
    return create_model("MethodFlags", **fields)


MethodFlags = _method_flags()
_NONE_GIVEN = MethodFlags()


def certify(
    *,
    call: Call,
    options: Annotated[MethodFlags, Parameter(name="*")] = _NONE_GIVEN,  # type: ignore[valid-type]
) -> int:
    """Train or take a network and promise how often it can err on data it has not seen."""
    call.check()
    chosen: dict[str, Any] = dict(options)
    given = {name: value for name, value in chosen.items() if value is not None}
    if "prior" in given:
        given["prior"] = PRIOR_NAMES.get(given["prior"], given["prior"])
    method = _method_asked(call, given)
    # Imported once the flags are known to make sense: torch takes seconds to load.
    from nonvacuous.cli.certify_run import run

    return run(call, method)


def _method_of(mode: str, given: Given) -> Method:
    """The settings of a method out of the flags that were given, each checked under its name."""
    kind = METHODS[mode]
    own = {name: field for name, _, field in flags_of(kind)}
    for name, value in given.items():
        if name not in own:
            owners = [m for m, other in METHODS.items() if name in {n for n, *_ in flags_of(other)}]
            typed = flags.dashed(f"no_{name}" if value is False else name)
            raise _misplaced(typed, mode, owners)
        checked: Any = Annotated[(own[name].annotation, *own[name].metadata)]
        flag = flags.dashed(name)
        try:
            TypeAdapter(checked).validate_python(value, context={"name": flag})
        except ValidationError as error:
            raise UsageError(str(in_words(error, spelled=f"{flag}{{}}".format))) from error
    with as_usage():
        return kind(**from_flags(kind, given))


def _misplaced(flag: str, mode: str, owners: Sequence[str]) -> UsageError:
    belongs = f"it belongs to --mode {' or '.join(owners)}. Leave it out."
    return UsageError(f"{flag} would change nothing in --mode {mode}: {belongs}")


def _method_asked(call: Call, given: Given) -> Method:
    """The method with its settings; raise a usage error where flags contradict one another."""
    mode: Mode = call.mode or ("posterior" if call.weights is None else "post-hoc")
    for flag, value, belongs in (
        ("--initial", call.initial, (PostHoc, Sparsity)),
        ("--part", call.part, (HeldOut,)),
        ("--tensorboard", call.tensorboard, (Posterior, Progressive)),
    ):
        modes = [kind.mode for kind in belongs]
        if value is not None and mode not in modes:
            raise _misplaced(flag, mode, modes)
    if given.get("standardize") and "standardize" not in METHODS[mode].model_fields:
        why = "the given --weights expect inputs as they were trained on: put the shift and the "
        why += "scale into the network, as its first layer, or into the data"
        if call.weights is None and not KINDS[mode].given:
            why = "the networks trained there take inputs of norm 1 (--unit-norm) instead"
        raise UsageError(f"--standardize has no place in --mode {mode}: {why}.")
    _CHECKS[mode](call, given)
    return _method_of(mode, given)


def _posterior(call: Call, given: Given) -> None:
    if call.weights is not None and not given.get("pretrained"):
        raise UsageError(
            f"--mode {call.mode} starts from --weights, and a start that has seen these examples "
            "makes the promise false. Add --pretrained 'where they come from' if the weights were "
            "trained on other, independent data; to certify them as they are, use --mode post-hoc."
        )
    if given.get("pretrained") and call.weights is None:
        raise UsageError("--pretrained speaks of --weights FILE.safetensors: give them too.")


def _progressive(call: Call, given: Given) -> None:
    _posterior(call, given)
    if call.max_risk is not None and given.setdefault("threshold", call.max_risk) != call.max_risk:
        raise UsageError(
            f"--max-risk {call.max_risk:g} and --threshold {given['threshold']:g} are two gates, "
            "and one can be declared: give one of them."
        )


def _holdout(call: Call, _given: Given) -> None:
    if call.weights is None:
        raise UsageError(
            f"--mode {call.mode} certifies a network that is trained already: give its "
            "--weights FILE.safetensors, or leave --mode out to train one."
        )


def _post_hoc(call: Call, given: Given) -> None:
    _holdout(call, given)
    prior = given.get("prior")
    if given.get("predictor") == "drawn" and False in (
        given.get("translation"),
        given.get("permutation"),
    ):
        raise UsageError(
            "--no-translation and --no-permutation would change nothing with --predictor "
            "drawn: one network pays for its own weights, not for a KL. Leave them out."
        )
    if given.get("pretrained") and call.initial is None:
        raise UsageError("--pretrained speaks of --initial FILE.safetensors: give them too.")
    if prior not in (None, "zero", "initialization"):
        raise UsageError(
            f"--prior {prior}: --mode post-hoc knows zero and initialization.",
            instead={"--prior": "zero"},
        )
    _given_prior(call, prior)
    if prior == "initialization" and call.initial is None and call.init_seed is None:
        raise UsageError(
            "--prior initialization needs the weights before training: --initial "
            "FILE.safetensors, or --init-seed N if --model builds them from that seed."
        )
    given.setdefault("prior", "initialization")


def _sparsity(call: Call, given: Given) -> None:
    """A network that is trained here gets its prior here; a given one brings its own."""
    prior, theorem = given.get("prior"), given.get("theorem", "E")
    with as_usage("--prior: ", instead={"--prior": LEARNED}):
        kind, _ = prior_kind(prior or LEARNED)
    if (call.model or "").startswith("cnn:") and theorem != "E":
        raise UsageError(
            f"--theorem {theorem}: it covers linear layers only; a convolutional "
            "network is certified by theorem E.",
            instead={"--theorem": "E"},
        )
    if call.weights is None:
        if call.initial is not None or given.get("pretrained"):
            raise UsageError(
                "--initial and --pretrained speak of the prior of given --weights: give those "
                "too, or leave them out to train a network here."
            )
        _check_biases(call.model)
        return
    zero = {"--prior": "zero"}
    if kind == "learned" and prior is not None:
        raise UsageError(
            f"--prior {prior}: what these weights were trained on is not known here. Give "
            "--prior zero, or --initial FILE.safetensors with the same network before training "
            "(usually far better).",
            instead=zero,
        )
    _given_prior(call, prior, zero)
    if kind == "initialization" and call.initial is None:
        _given_prior(call, None, zero)
    given.setdefault("prior", "initialization")


def _given_prior(call: Call, prior: str | None, instead: Mapping[str, str] | None = None) -> None:
    """Given weights need a prior that has not seen the data, and one only."""
    if prior is None and call.initial is None:
        raise UsageError(
            f"--mode {call.mode or PostHoc.mode} measures how far the weights have come from a "
            "prior that has not seen the data. Add --initial FILE.safetensors, the same network "
            "before training (usually far better), or --prior zero.",
            instead=instead,
        )
    if prior == "zero" and call.initial is not None:
        raise UsageError("--prior zero has no use for --initial: leave one of them out.")


def _check_biases(model: str | None) -> None:
    """The built-in networks have biases unless told otherwise."""
    plain = None
    if model is not None and re.fullmatch(r"mlp(:[0-9, ]*)?", model):
        plain = f"mlp:{model.partition(':')[2] or '100'}/no-bias"
    elif model is not None and re.fullmatch(r"cnn(:[0-9, ]*(/[0-9, ]+)?)?", model):
        plain = f"cnn:{model.partition(':')[2] or '32,64'}/no-bias"
    if plain is not None:
        raise UsageError(
            f"--model {model} has biases, and the networks that --mode sparsity trains have none; "
            f"write {plain}.",
            instead={"--model": plain},
        )


_CHECKS: dict[str, Callable[[Call, Given], None]] = {
    Posterior.mode: _posterior,
    PostHoc.mode: _post_hoc,
    Sparsity.mode: _sparsity,
    HeldOut.mode: _holdout,
    Progressive.mode: _progressive,
}
