"""Networks and detectors that fail on purpose; a file of their own, so that workers import them."""

import os
import signal
from pathlib import Path

import torch
from torch import nn

from rood.detectors import MSP
from rood.errors import InputError
from rood.models.model import Model


class Hungry(nn.Module):
    """A network that runs out of memory above so many images, once it has been asked a while."""

    def __init__(self, model, most, error, patience=0):
        super().__init__()
        self.net = model.net
        self.most, self.error, self.patience = most, error, patience
        self.refused = 0

    def forward(self, x):
        self.patience -= 1
        if self.patience < 0 and len(x) > self.most:
            self.refused += 1
            raise self.error
        return self.net(x)


def hungry(model, most, error, patience=0):
    """The same network as a model that is hungry."""
    stats = [tuple(v.flatten().tolist()) for v in (model.mean, model.std)]
    return Model(Hungry(model, most, error, patience), model.head, *stats).eval()


class Frail(MSP):
    """MSP, but in another process than the first it breaks, as often as the folder has files."""

    def __init__(self, model, *, folder, how):
        super().__init__(model)
        self.folder, self.how = folder, how
        self.home = os.getpid()

    def score_outputs(self, out):
        if os.getpid() != self.home and torch.is_grad_enabled():  # not before an attack
            for file in Path(self.folder).iterdir():
                try:
                    file.unlink()  # only one process succeeds
                except FileNotFoundError:
                    continue
                self.fail()
        return super().score_outputs(out)

    def fail(self):
        if self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "broken":
            raise RuntimeError("a connection was reset")
        raise InputError("expected something else")
