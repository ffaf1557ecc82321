"""Detectors of other libraries, audited as ours; results for pandas and spreadsheets."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import refused
from small_audit import small_model

import rood
from rood.attacks import PGD, WorstOf
from rood.detectors import Energy, ReAct
from rood.errors import CapabilityError, InputError, NotFittedError, ResultsError
from rood.evaluation.store import Results, rows_from_csv
from rood.goals import look_in
from rood.interop import Bridge, features, from_openood, from_pytorch_ood, logits
from rood.testing.world import blobs, stripes
from rood.threat import Linf

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".venv-peers" / "bin" / "python"


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def batches():
    x, y = blobs(90, seed=11)
    return [(x[:60], y[:60]), (x[60:], y[60:])]


class TheirEnergy:
    """As pytorch-ood has it, with the decorator that cuts the gradient."""

    requires_fit = False

    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def predict(self, x):
        return -self.model(x).logsumexp(dim=1)[:, None]


class TheirNearest:
    """Nearest training feature through NumPy: the cut is too deep."""

    requires_fit = True

    def __init__(self, encoder):
        self.encoder = encoder
        self.bank = None

    def fit(self, loader, device=None):
        self.bank = torch.cat([self.encoder(x.to(device)) for x, y in loader]).detach().numpy()
        return self

    def predict(self, x):
        z = self.encoder(x).detach().numpy()
        x.zero_()  # as ASH does with what it is given
        return torch.from_numpy(np.abs(z[:, None] - self.bank[None]).sum(axis=2).min(axis=1))


class TheirReact:
    """A postprocessor as OpenOOD has it: setup with loaders of dicts, confidence last."""

    def setup(self, net, id_loader_dict, ood_loader_dict):
        found = [net(b["data"], return_feature=True)[1] for b in id_loader_dict["train"]]
        self.threshold = float(torch.cat(found).quantile(0.9))
        weight, bias = net.get_fc()
        assert weight.shape == (3, net.fc.in_features)
        assert bias.shape == (3,)

    @torch.no_grad()
    def postprocess(self, net, data):
        z = net.forward_threshold(data, self.threshold)
        return z.argmax(dim=1), z.logsumexp(dim=1)


def images(n=8):
    return stripes(n, seed=3)


def test_a_detector_of_pytorch_ood_gives_the_same_scores_and_its_gradient(model, batches):
    theirs = from_pytorch_ood(TheirEnergy(logits(model))).fit(batches)
    ours = Energy(model)
    torch.testing.assert_close(theirs.score(images()), ours.score(images()))
    assert theirs.gradient == "almost_everywhere"
    g = lambda d: torch.autograd.grad(d.score(x := images().requires_grad_()).sum(), x)[0]
    torch.testing.assert_close(g(theirs), g(ours))
    assert theirs.settings() == {"class": "Bridge", "name": "TheirEnergy"}


def test_a_postprocessor_of_openood_is_turned_round(model, batches):
    theirs = from_openood(TheirReact(), model).fit(batches)
    assert isinstance(theirs, Bridge)
    x = images()
    z = model.head(model(x).features.clamp(max=theirs_threshold(model, batches)))
    torch.testing.assert_close(theirs.score(x), -z.logsumexp(dim=1))
    assert theirs.gradient == "almost_everywhere"
    ours = ReAct(model).fit(batches)
    assert np.corrcoef(theirs.score(x).detach(), ours.score(x).detach())[0, 1] > 0.9


def theirs_threshold(model, batches):
    return float(torch.cat([model(x).features for x, _ in batches]).quantile(0.9))


def test_a_gradient_that_is_cut_is_said(model, batches):
    nearest = from_pytorch_ood(TheirNearest(features(model)))
    assert Bridge.gradient == "almost_everywhere"
    nearest.fit(batches)
    assert (nearest.gradient, Bridge.gradient) == ("none", "almost_everywhere")
    x, g = images(), torch.Generator().manual_seed(0)
    with pytest.raises(CapabilityError, match="use an attack without gradients"):
        PGD(steps=2)(look_in(nearest), x, Linf(0.1), g)
    moved = WorstOf(tier="quick")(look_in(nearest), x, Linf(0.1), g)
    assert (nearest.score(moved) < nearest.score(x)).float().mean() > 0.5


def test_images_are_not_overwritten_and_what_was_learnt_leaves_a_mark(model, batches):
    nearest = from_pytorch_ood(TheirNearest(features(model)))
    refused(NotFittedError, "has no mark_ yet", nearest.score, images())
    first = nearest.fit(batches).mark_.clone()
    x = images()
    before = x.clone()
    nearest.score(x)
    assert torch.equal(x, before)
    assert first.shape == (16,)
    assert (first < 1e-4).all()  # of training images, whose nearest is themselves
    assert first.dtype == x.dtype


def test_what_is_no_detector_of_theirs_is_refused(model):
    refused(InputError, "with predict(), got Linear", from_pytorch_ood, torch.nn.Linear(2, 2))
    with pytest.raises(InputError, match=r"with postprocess\(\), got Linear"):
        from_openood(torch.nn.Linear(2, 2), model)
    with pytest.raises(InputError, match=r"TheirEnergy to be built on logits\(model\)"):
        from_pytorch_ood(TheirEnergy(model.net))


def test_scores_of_another_shape_are_refused(model, batches):
    bridge = Bridge(model, lambda x: x[:, 0], lambda b: None, name="pixelwise")
    refused(CapabilityError, "expected one score per image from pixelwise", bridge.fit, batches)


def test_a_bridge_is_audited_like_any_detector(model, batches, tmp_path):
    bridge = from_pytorch_ood(TheirEnergy(logits(model))).fit(batches)
    results = audited(model, {"theirs": bridge, "ours": Energy(model)}, tmp_path)
    theirs, ours = (results.find(detector=d, metric="auroc") for d in ("theirs", "ours"))
    assert theirs[0].value == pytest.approx(ours[0].value)
    assert len(theirs) == len(ours) == 4


def audited(model, detectors, out):
    return rood.audit(
        model,
        detectors,
        inside=blobs(120, seed=12),
        outside={"stripes": stripes(20, seed=13)},
        threats=[Linf(0.02)],
        attack=PGD(steps=3),
        out=out,
    )


THEIRS = """
import sys
sys.path[:0] = [{tests!r}, {root!r}]
import torch
from benchmarks.peers.parity import load_peer
from small_audit import small_model
from rood.interop import features, from_pytorch_ood, logits
from rood.detectors import KNN, Energy
from rood.testing.world import blobs, stripes
theirs = load_peer()
model = small_model()
batches, x = [blobs(90, seed=11)], stripes(8, seed=3)
for bridge, own, power in (
    (theirs.EnergyBased(logits(model)), Energy(model), 1),
    (theirs.KNN(features(model), k=5), KNN(model, k=5), 2),  # ours is the square
    (theirs.Mahalanobis(features(model)), None, 1),
    (theirs.ODIN(logits(model)), None, 1),
):
    d = from_pytorch_ood(bridge).fit(batches)
    s = d.score(x).detach()
    same = own is None or torch.allclose(s**power, own.fit(batches).score(x).detach(), atol=1e-4)
    print(d.name, d.gradient, same, s.isfinite().all().item())
"""


@pytest.mark.skipif(not PEERS.is_file(), reason="needs the environment of `make peers`")
def test_the_real_pytorch_ood_is_bridged():
    code = THEIRS.format(tests=str(ROOT / "tests"), root=str(ROOT))
    done = subprocess.run([str(PEERS), "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "EnergyBased almost_everywhere True True",
        "KNN none True True",
        "Mahalanobis none True True",
        "ODIN none True True",
    ]


# results elsewhere


@pytest.fixture(scope="module")
def results(model, tmp_path_factory):
    return audited(model, {"energy": Energy(model)}, tmp_path_factory.mktemp("results"))


def test_rows_survive_a_table(results, tmp_path):
    results.to_csv(tmp_path / "rows.csv")
    assert tuple(rows_from_csv(tmp_path / "rows.csv")) == results.rows


def test_tables_that_are_no_rows_are_refused(results, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ResultsError, match=r"expected columns model, detector, .* got a, b"):
        list(rows_from_csv(path))
    results.to_csv(path)
    lines = path.read_text().splitlines()
    names = lines[0].split(",")
    broken = lines[1].split(",")
    broken[names.index("value")] = "high"
    path.write_text("\n".join([lines[0], ",".join(broken)]))
    with pytest.raises(ResultsError, match=r"expected a number as 'value' in line 2 .* got 'high'"):
        list(rows_from_csv(path))
    refused(ResultsError, "expected a table of rows", list, rows_from_csv(tmp_path / "none.csv"))


def test_rows_become_a_data_frame(results, monkeypatch):
    pytest.importorskip("pandas", reason="needs pandas")
    frame = results.to_pandas()
    assert len(frame) == len(results.rows)
    assert frame.loc[frame.metric == "accuracy", "value"].iloc[0] == results.rows[0].value
    assert Results(results.folder).to_pandas().equals(frame)
    monkeypatch.setitem(sys.modules, "pandas", None)
    refused(CapabilityError, "needs pandas: pip install pandas", results.to_pandas)
