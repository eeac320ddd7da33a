"""The flags of ``nonvacuous certify`` that choose a method: made from its fields, checked together.

No torch here: a mistake is named before anything is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from pydantic import BaseModel, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo

from nonvacuous.certification.method import Method
from nonvacuous.cli.exits import UsageError, again, as_usage
from nonvacuous.cli.flags import dashed, read_as, typed
from nonvacuous.kinds import LEARNED, prior_kind
from nonvacuous.methods import METHODS, HeldOut, Posterior, PostHoc, Progressive, Sparsity
from nonvacuous.settings import Flag, flags_of, from_flags, in_words

if TYPE_CHECKING:
    from nonvacuous.cli.certify import Call

Given = dict[str, Any]


def method_flags(groups: Mapping[str, Group]) -> type[BaseModel]:
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
        parameter = Parameter(
            group=groups[flag.group],
            help=" ".join(texts),
            negative=() if flag.switch else None,
            show_default=_shown(None if flag.switch else shown),
        )
        kind = typed(field.annotation)
        fields[name] = (Annotated[(kind | None, parameter, read_as(kind))], None)
    return create_model("MethodFlags", **fields)


def _shown(default: Any) -> Callable[[Any], Any] | bool:
    """What the help says is the default; nothing where it depends on the method."""
    return False if default is None else lambda _none_given: default


def method_of(mode: str, given: Mapping[str, Any]) -> Method:
    """The settings of a method out of the flags that were given, each checked under its name."""
    kind = METHODS[mode]
    own = {name: field for name, _, field in flags_of(kind)}
    for name, value in given.items():
        if name not in own:
            owners = [m for m, other in METHODS.items() if name in {n for n, *_ in flags_of(other)}]
            raise _misplaced(said(name, value), mode, owners)
        checked: Any = Annotated[(own[name].annotation, *own[name].metadata)]
        try:
            TypeAdapter(checked).validate_python(value, context={"name": dashed(name)})
        except ValidationError as error:
            raise UsageError(str(in_words(error, kind))) from error
    with as_usage():
        return kind(**from_flags(kind, dict(given)))


def _misplaced(flag: str, mode: str, owners: Sequence[str]) -> UsageError:
    belongs = f"it belongs to --mode {' or '.join(owners)}. Leave it out."
    return UsageError(f"{flag} would change nothing in --mode {mode}: {belongs}")


def said(name: str, value: Any) -> str:
    """A flag as it was typed, as far as it matters.

    >>> said("rescaling", False), said("trials", 9)
    ('--no-rescaling', '--trials')
    """
    return f"--no-{dashed(name)[2:]}" if value is False else dashed(name)


def method_asked(call: Call, given: Mapping[str, Any]) -> Method:
    """The method with its settings; raise a usage error where flags contradict one another."""
    mode = call.mode or ("posterior" if call.weights is None else "post-hoc")
    chosen = dict(given)
    for flag, value, belongs in (
        ("--initial", call.initial, (PostHoc, Sparsity)),
        ("--part", call.part, (HeldOut,)),
        ("--tensorboard", call.tensorboard, (Posterior, Progressive)),
    ):
        modes = [kind.mode for kind in belongs]
        if value is not None and mode not in modes:
            raise _misplaced(flag, mode, modes)
    if chosen.get("standardize") and mode not in (Posterior.mode, Progressive.mode):
        why = "the given --weights expect inputs as they were trained on: put the shift and the "
        why += "scale into the network, as its first layer, or into the data"
        if mode == Sparsity.mode and call.weights is None:
            why = "the networks trained there take inputs of norm 1 (--unit-norm) instead"
        raise UsageError(f"--standardize has no place in --mode {mode}: {why}.")
    _CHECKS[mode](call, chosen)
    return method_of(mode, chosen)


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
            next_command=again(replacing={"--prior": "zero"}),
        )
    _given_prior(call, prior, next_command=None)
    if prior == "initialization" and call.initial is None and call.init_seed is None:
        raise UsageError(
            "--prior initialization needs the weights before training: --initial "
            "FILE.safetensors, or --init-seed N if --model builds them from that seed."
        )
    given.setdefault("prior", "initialization")


def _sparsity(call: Call, given: Given) -> None:
    """A network that is trained here gets its prior here; a given one brings its own."""
    prior, theorem = given.get("prior"), given.get("theorem", "E")
    with as_usage("--prior: ", next_command=again(replacing={"--prior": LEARNED})):
        kind, _ = prior_kind(prior or LEARNED)
    if (call.model or "").startswith("cnn:") and theorem != "E":
        raise UsageError(
            f"--theorem {theorem}: it covers linear layers only; a convolutional "
            "network is certified by theorem E.",
            next_command=again(replacing={"--theorem": "E"}),
        )
    if call.weights is None:
        if call.initial is not None or given.get("pretrained"):
            raise UsageError(
                "--initial and --pretrained speak of the prior of given --weights: give those "
                "too, or leave them out to train a network here."
            )
        _check_biases(call.model)
        return
    zero = again(replacing={"--prior": "zero"})
    if kind == "learned" and prior is not None:
        raise UsageError(
            f"--prior {prior}: what these weights were trained on is not known here. Give "
            "--prior zero, or --initial FILE.safetensors with the same network before training "
            "(usually far better).",
            next_command=zero,
        )
    _given_prior(call, prior, next_command=zero)
    if kind == "initialization" and call.initial is None:
        _given_prior(call, None, next_command=zero)
    given.setdefault("prior", "initialization")


def _given_prior(call: Call, prior: str | None, *, next_command: str | None) -> None:
    """Given weights need a prior that has not seen the data, and one only."""
    if prior is None and call.initial is None:
        raise UsageError(
            f"--mode {call.mode or PostHoc.mode} measures how far the weights have come from a "
            "prior that has not seen the data. Add --initial FILE.safetensors, the same network "
            "before training (usually far better), or --prior zero.",
            next_command=next_command,
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
            next_command=again(replacing={"--model": plain}),
        )


_CHECKS: dict[str, Callable[[Call, Given], None]] = {
    Posterior.mode: _posterior,
    PostHoc.mode: _post_hoc,
    Sparsity.mode: _sparsity,
    HeldOut.mode: _holdout,
    Progressive.mode: _progressive,
}
