"""Convolutional networks with tiny widths, each with its number of free scales by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks.architecture import Architecture, Residual, images


def convolution(incoming: int, outgoing: int, *, bn: bool = True, **options: object) -> nn.Module:
    """3 x 3 convolution, with batch normalization where asked for."""
    layers: list[nn.Module] = [nn.Conv2d(incoming, outgoing, 3, padding=1, bias=not bn, **options)]
    return nn.Sequential(*layers, *([nn.BatchNorm2d(outgoing)] if bn else []))


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3),
    )  # fmt: skip


def vgg(*, bn: bool) -> nn.Module:
    return nn.Sequential(
        convolution(3, 4, bn=bn), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        convolution(4, 5, bn=bn), nn.ReLU(inplace=True),
        convolution(5, 5, bn=bn), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(20, 6), nn.ReLU(True), nn.Dropout(), nn.Linear(6, 7), nn.ReLU(True),
        nn.Linear(7, 3),
    )  # fmt: skip


def basic_block(incoming: int, width: int, stride: int, *, bn: bool) -> nn.Module:
    body = nn.Sequential(
        convolution(incoming, width, bn=bn, stride=stride),
        nn.ReLU(),
        convolution(width, width, bn=bn),
    )
    shortcut = None
    if stride != 1 or incoming != width:
        layers = [nn.Conv2d(incoming, width, 1, stride, bias=not bn)]
        shortcut = nn.Sequential(*layers, *([nn.BatchNorm2d(width)] if bn else []))
    return nn.Sequential(Residual(body, shortcut), nn.ReLU(inplace=True))


def resnet18(*, bn: bool) -> nn.Module:
    """Streams 2 + 3 + 4 + 5 (the stem writes the first); two inner widths a stage."""
    layers: list[nn.Module] = [convolution(3, 2, bn=bn), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    incoming = 2
    for stage, width in enumerate((2, 3, 4, 5)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            layers.append(basic_block(incoming, width, stride, bn=bn))
            incoming = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3))


def bottleneck(incoming: int, width: int, stride: int) -> nn.Module:
    outgoing = 2 * width
    body = nn.Sequential(
        nn.Conv2d(incoming, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, outgoing, 1, bias=False), nn.BatchNorm2d(outgoing),
    )  # fmt: skip
    shortcut = None
    if stride != 1 or incoming != outgoing:
        shortcut = nn.Sequential(
            nn.Conv2d(incoming, outgoing, 1, stride, bias=False), nn.BatchNorm2d(outgoing)
        )
    return nn.Sequential(Residual(body, shortcut), nn.ReLU())


def resnet50() -> nn.Module:
    """Stem 3; streams 4 + 4 + 6 + 6; inside each of the 3, 4, 6, 3 blocks twice 2, 2, 3, 3."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 3, 7, 2, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    incoming = 3
    for stage, (width, blocks) in enumerate(zip((2, 2, 3, 3), (3, 4, 6, 3), strict=True)):
        for block in range(blocks):
            layers.append(bottleneck(incoming, width, 2 if stage and not block else 1))
            incoming = 2 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))


def preactivation_resnet() -> nn.Module:
    """Stream 4; in two blocks the factors before the first ReLU (4) and the inner channels (4);
    the last normalization (4)."""

    def block() -> nn.Module:
        return Residual(
            nn.Sequential(
                nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, bias=False),
                nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, bias=False),
            )
        )  # fmt: skip

    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), block(), block(), nn.BatchNorm2d(4), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


class DenseLayer(nn.Module):
    def __init__(self, incoming: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(incoming)
        self.conv = nn.Conv2d(incoming, 2, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(torch.relu(self.norm(x)))], 1)


def densenet() -> nn.Module:
    """Stem 4; factors 4, conv 2; factors 6, conv 2; factors 8, transition 4; factors 4."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), DenseLayer(4), DenseLayer(6),
        nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1, bias=False), nn.AvgPool2d(2),
        nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


def inverted_residual(incoming: int, hidden: int, outgoing: int, activation: type) -> nn.Module:
    body = nn.Sequential(
        nn.Conv2d(incoming, hidden, 1, bias=False), nn.BatchNorm2d(hidden), activation(),
        nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False),
        nn.BatchNorm2d(hidden), activation(),
        nn.Conv2d(hidden, outgoing, 1, bias=False), nn.BatchNorm2d(outgoing),
    )  # fmt: skip
    return Residual(body) if incoming == outgoing else body


def mobilenet(activation: type) -> nn.Module:
    """Stem 3; 6 + 6; stream 4; 8 + 8; head 5. With ReLU6 only the linear stream is free."""
    return nn.Sequential(
        nn.Conv2d(3, 3, 3, 2, 1, bias=False), nn.BatchNorm2d(3), activation(),
        inverted_residual(3, 6, 4, activation), inverted_residual(4, 8, 4, activation),
        nn.Conv2d(4, 5, 1, bias=False), nn.BatchNorm2d(5), activation(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3),
    )  # fmt: skip


class Branches(nn.Module):
    """Several branches, concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def inception() -> nn.Module:
    """Stem 3; branches 2, 2 + 3, 2 + 2, 2."""

    def conv(incoming: int, outgoing: int, size: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(incoming, outgoing, size, padding=size // 2), nn.ReLU())

    block = Branches(
        conv(3, 2, 1),
        nn.Sequential(conv(3, 2, 1), conv(2, 3, 3)),
        nn.Sequential(conv(3, 2, 1), conv(2, 2, 5)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(3, 2, 1)),
    )
    return nn.Sequential(
        conv(1, 3, 3), block, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(9, 3)
    )


def squeezenet() -> nn.Module:
    """Stem 4, squeeze 2, expand 3 + 3."""
    fire = nn.Sequential(
        nn.Conv2d(4, 2, 1),
        nn.ReLU(),
        Branches(
            nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU()),
            nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU()),
        ),
    )
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), fire, nn.Dropout(),
        nn.Conv2d(6, 3, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


class UNet(nn.Module):
    """Encoder 3 + 3, bottom 4, transposed 3, decoder 3."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(1, 3, 3, padding=1)
        self.down2 = nn.Conv2d(3, 3, 3, padding=1)
        self.bottom = nn.Conv2d(3, 4, 3, padding=1)
        self.up = nn.ConvTranspose2d(4, 3, 2, 2)
        self.merge = nn.Conv2d(6, 3, 3, padding=1)
        self.last = nn.Conv2d(3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = torch.relu(self.down2(torch.relu(self.down1(x))))
        bottom = torch.relu(self.bottom(F.max_pool2d(skip, 2)))
        merged = torch.cat([self.up(bottom), skip], dim=1)
        return self.last(torch.relu(self.merge(merged)))


def autoencoder() -> nn.Module:
    """3 + 4 + 4 + 3; the last transposed convolution is grouped."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, 2, 1), nn.ReLU(), nn.Conv2d(3, 4, 3, 2, 1), nn.LeakyReLU(0.2),
        nn.ConvTranspose2d(4, 4, 4, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(4, 6, 4, 2, 1, groups=2), nn.ReLU(),
        nn.Conv2d(6, 1, 3, padding=1), nn.Sigmoid(),
    )  # fmt: skip


def grouped() -> nn.Module:
    """4, grouped 6, depthwise with two filters a channel 12."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2), nn.ReLU(),
        nn.ChannelShuffle(3), nn.Conv2d(6, 12, 3, groups=6, padding="same"), nn.ReLU(),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(12, 3),
    )  # fmt: skip


def convolution1d() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


def convolution3d() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(2, 3, 3, padding=1), nn.ReLU(), nn.AvgPool3d(2),
        nn.Flatten(), nn.Linear(3, 3),
    )  # fmt: skip


class PaddedShortcut(nn.Module):
    """A block whose shortcut drops every other pixel and adds a channel of zeros on each side."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 5, 3, 2, 1), nn.ReLU(), nn.Conv2d(5, 5, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1)))


def padded_resnet() -> nn.Module:
    """Stream 3, of which the second stage has 2 more; inner 3 and 5."""
    first = Residual(
        nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 3, 3, padding=1))
    )
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), first, nn.ReLU(), PaddedShortcut(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3),
    )  # fmt: skip


class GroupNormNet(nn.Module):
    """The convolutions are pinned by what normalizes them; the gains 4 + 6 are free."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(),
            nn.Conv2d(4, 6, 3), nn.InstanceNorm2d(6, affine=True), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean(dim=(2, 3)))


def superresolution() -> nn.Module:
    """4; then 2 after four channels each became one."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3, padding=1),
        nn.PixelShuffle(2), nn.ReLU(), nn.Conv2d(2, 1, 3, padding=1, padding_mode="reflect"),
    )  # fmt: skip


def upsampling() -> nn.Module:
    """3 + 4; pixel unshuffle makes 16 inputs of the 4."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2),
        nn.PixelUnshuffle(2), nn.Conv2d(16, 1, 1),
    )  # fmt: skip


def adaptive() -> nn.Module:
    """3 channels, each read at 4 positions; 5."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(),
        nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3),
    )  # fmt: skip


CONVOLUTIONAL: list[Architecture] = [
    Architecture("lenet", lenet, images(1), 3 + 4 + 8 + 6),
    Architecture("vgg", lambda: vgg(bn=False), images(3), 4 + 5 + 5 + 6 + 7),
    Architecture("vgg folded", lambda: vgg(bn=True), images(3), 27, fold=True),
    Architecture("resnet18", lambda: resnet18(bn=False), images(3, 16), 14 + 28),
    Architecture("resnet18 folded", lambda: resnet18(bn=True), images(3, 16), 42, fold=True),
    Architecture("resnet18 unfolded", lambda: resnet18(bn=True), images(3, 16), 42),
    Architecture("resnet50 folded", resnet50, images(3, 32), 3 + 20 + 82, fold=True),
    Architecture("preactivation resnet", preactivation_resnet, images(1), 24, fold=True),
    Architecture("densenet", densenet, images(1), 34, fold=True),
    Architecture("mobilenet relu", lambda: mobilenet(nn.ReLU), images(3), 40, fold=True),
    Architecture("mobilenet relu6", lambda: mobilenet(nn.ReLU6), images(3), 4, fold=True),
    Architecture("inception", inception, images(1), 3 + 2 + 5 + 4 + 2),
    Architecture("squeezenet", squeezenet, images(1), 4 + 2 + 3 + 3),
    Architecture("unet", UNet, images(1), 3 + 3 + 4 + 3 + 3),
    Architecture("autoencoder", autoencoder, images(1), 3 + 4 + 4 + 6),
    Architecture("grouped convolutions", grouped, images(1), 4 + 6 + 12),
    Architecture("conv1d", convolution1d, lambda: torch.randn(2, 2, 8, dtype=torch.float64), 7),
    Architecture("conv3d", convolution3d, lambda: torch.randn(2, 1, 4, 4, 4).double(), 5),
    Architecture("zero-padded shortcut", padded_resnet, images(1), 3 + 2 + 3 + 5),
    Architecture("group and instance norm", GroupNormNet, images(1), 10),
    Architecture("pixel shuffle", superresolution, images(1), 4 + 2),
    Architecture("upsampling", upsampling, images(1), 3 + 4),
    Architecture("adaptive pooling", adaptive, images(1), 3 + 5),
]
