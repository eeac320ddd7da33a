"""Search for the setting of pretrained.py: many posteriors trained side by side, tries counted.

    python benchmarks/pretrained_search.py --data-dir DATA --device cuda --features FEATURES/*

First each view alone, then pairs and a triple of the best, each with a few settings; then settings
around the best. What stands here is an estimate by one draw for each example, and no certificate.

Only the first step tries priors that are written down beforehand. Later ones start from what was
best on the same examples, so that a certificate must pay for every prior that they could have come
to, not for those they tried: for five views 25 sets of views, three numbers of dimensions, four
spreads and six scales. The recorded certificates come from the first step, whose tries are paid.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import combinations, islice, product
from pathlib import Path
from typing import Any

import torch
from pretrained import ATTEMPTS, Head, Setting, examples, view_of
from provenance import write_result
from torch import Tensor

import nonvacuous as nv

#: Tries on the same examples before this search, and after it, that the attempts pay for too.
OTHER_TRIES = 300
_BATCH = 500


class Trial:
    """The features of some views on a device, and posteriors trained on them."""

    def __init__(self, folders: Sequence[Path], data: Any, device: str) -> None:
        self.folders, self.device = folders, device
        part = examples(folders, "train", data.train)
        self.inputs, self.labels = part.inputs.to(device), part.labels.to(device)
        self.views = [view_of(folder) for folder in folders]

    def bounds(self, settings: Sequence[Setting]) -> list[dict[str, Any]]:
        """One posterior for each setting; dimensions and epochs are those of the first."""
        first, count = settings[0], len(settings)
        head = Head(self.views, dimensions=first.dimensions, spread=1.0).to(self.device).eval()
        with torch.no_grad():
            rows = torch.cat([head.fixed_front(part) for part in self.inputs.split(4096)])
        center = head.output.weight.detach()
        means = torch.stack([setting.spread * center for setting in settings])
        column = {
            name: torch.tensor([getattr(s, name) for s in settings], device=self.device)
            for name in ("scale", "penalty", "power", "rate")
        }
        prior_scale, rate = column["scale"][:, None, None], column["rate"][:, None, None]
        # Adam's steps do not depend on the size of gradients: a step size for each column.
        moved = torch.zeros_like(means).requires_grad_()
        logs = (0.5 * prior_scale).log().expand_as(means).clone().requires_grad_()
        optimizer = torch.optim.Adam(
            [{"params": [moved], "lr": 1.0}, {"params": [logs], "lr": 0.03}]
        )
        steps = first.epochs * (len(rows) // _BATCH)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        constant = math.log(2 * math.sqrt(len(rows)) / (0.05 / ATTEMPTS))
        generator = torch.Generator(self.device).manual_seed(0)

        def nats() -> Tensor:
            squares = ((2 * logs).exp() + (rate * moved).square()) / (2 * prior_scale.square())
            return (prior_scale.log() - logs + squares - 0.5).sum(dim=(1, 2))

        def scores(part: Tensor) -> Tensor:
            weight = (means + rate * moved).flatten(0, 1)
            spread = (part.square() @ (2 * logs).exp().flatten(0, 1).T + 1e-12).sqrt()
            noise = torch.randn(spread.shape, generator=generator, device=self.device)
            return (part @ weight.T + spread * noise).unflatten(1, (count, 10))

        for step in range(steps):
            if step % (len(rows) // _BATCH) == 0:
                order = torch.randperm(len(rows), generator=generator, device=self.device)
                order = order[: len(rows) // _BATCH * _BATCH].view(-1, _BATCH)
            chosen = order[step % (len(rows) // _BATCH)]
            label = self.labels[chosen][:, None, None].expand(-1, count, 1)
            logs_of_label = scores(rows[chosen]).log_softmax(dim=2).gather(2, label).squeeze(2)
            risk = (1 - (column["power"] * logs_of_label).exp()).mean(dim=0)
            half = (column["penalty"] * nats() + constant) / len(rows) / 2
            ((risk + half).sqrt() + half.sqrt()).square().sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        with torch.no_grad():
            wrong = sum(
                (scores(part).argmax(dim=2) != labels[:, None]).sum(dim=0)
                for part, labels in zip(rows.split(_BATCH), self.labels.split(_BATCH), strict=True)
            )
            risks, prices = (wrong / len(rows)).tolist(), nats().tolist()
        return [
            {
                "views": [folder.name for folder in self.folders],
                "setting": asdict(setting),
                "empirical": risk,
                "kl_nats": price,
                "estimate": nv.bounds.seeger(
                    empirical_risk=risk,
                    kl_nats=price,
                    examples=len(rows),
                    failure=0.05 / ATTEMPTS,
                ),
            }
            for setting, risk, price in zip(settings, risks, prices, strict=True)
        ]


def _few(epochs: int) -> list[Setting]:
    choices = product((4.0, 8.0), (0.35, 0.7), (0.7, 1.0))
    return [
        Setting(spread=spread, scale=scale, penalty=penalty, epochs=epochs)
        for spread, scale, penalty in choices
    ]


def _around(best: Setting, dimensions: int, epochs: int) -> list[Setting]:
    factors = (0.5, 0.7, 1.0, 1.4)
    choices = product((0.5, 1.0, 2.0), factors, (0.7, 1.0), (0.7, 1.0))
    return [
        replace(
            best,
            dimensions=dimensions,
            epochs=epochs,
            spread=best.spread * spread,
            scale=best.scale * scale,
            penalty=best.penalty * penalty,
            power=best.power * power,
        )
        for spread, scale, penalty, power in choices
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--features", type=Path, nargs="+", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--seconds", type=float, default=240.0, help="start nothing new after it")
    chosen = parser.parse_args()
    data = nv.data.load("cifar10", data_dir=chosen.data_dir)
    started, tries = time.perf_counter(), []

    def best_of(folders: Sequence[Path], settings: Sequence[Setting]) -> None:
        if tries and time.perf_counter() - started > chosen.seconds:
            return
        if len(tries) + len(settings) > ATTEMPTS - OTHER_TRIES:
            return
        tries.extend(Trial(folders, data, chosen.device).bounds(settings))
        tries.sort(key=lambda entry: float(entry["estimate"]))
        print([f.name for f in folders], len(tries), f"{tries[0]['estimate']:.4f}", flush=True)
        write_result(
            "pretrained-search",
            {"tries": len(tries), "best": tries[0], "all": tries},
            seed=0,
        )

    for folder in chosen.features:
        best_of([folder], _few(chosen.epochs))
    ranked = list(dict.fromkeys(entry["views"][0] for entry in tries))
    by_name = {folder.name: folder for folder in chosen.features}
    top = [by_name[name] for name in ranked]
    for pair in islice(combinations(top[:4], 2), 6):
        best_of(pair, _few(chosen.epochs))
    if len(top) > 2:
        best_of(top[:3], _few(chosen.epochs))
    best = tries[0]
    for dimensions in chosen.dimensions:
        settings = _around(Setting(**best["setting"]), dimensions, chosen.epochs)
        best_of([by_name[name] for name in best["views"]], settings)
    best = tries[0]
    for epochs, rate in product((2, 4), (0.5, 1.0)):
        setting = Setting(**best["setting"])
        longer = replace(setting, epochs=epochs * chosen.epochs, rate=rate * setting.rate)
        best_of([by_name[name] for name in best["views"]], [longer])


if __name__ == "__main__":
    main()
