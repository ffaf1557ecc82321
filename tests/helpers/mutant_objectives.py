"""Training objectives with one fault each."""

import torch

from rood.training.objectives.cross_entropy import CrossEntropy


class DetachedLoss(CrossEntropy):
    def compute(self, model, batch, generator):
        return super().compute(model, batch, generator).detach()


class LossPerImage(CrossEntropy):
    def compute(self, model, batch, generator):
        return -model(batch.x).logits.log_softmax(dim=1)[:, 0]


class HeadOnly(CrossEntropy):
    def compute(self, model, batch, generator):
        z = model.head(model(batch.x).features.detach())
        return torch.nn.functional.cross_entropy(z, batch.y)


class Unlearns(CrossEntropy):
    def compute(self, model, batch, generator):
        return 10 - super().compute(model, batch, generator)


class SearchesInTrainMode(CrossEntropy):
    def compute(self, model, batch, generator):
        super().compute(model, batch, generator)
        return super().compute(model, batch, generator)


class NoiseFromNowhere(CrossEntropy):
    def compute(self, model, batch, generator):
        noisy = batch.x + 0.01 * torch.randn_like(batch.x)
        return super().compute(model, batch._replace(x=noisy), generator)


class AllBackToTrainMode(CrossEntropy):
    def compute(self, model, batch, generator):
        model.train()
        return super().compute(model, batch, generator)


class IgnoresItsOutliers(CrossEntropy):
    needs_outliers = True


class DoesNotAskForOutliers(CrossEntropy):
    needs_outliers = True

    def loss(self, model, batch, generator):
        return self.compute(model, batch, generator)
