"""The RecFusion family: settings that fit together, pictures of users, presets and objectives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import recfusion.diffusion as diffusion
from conftest import csr, random_csr
from recfusion.core import memory
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.split import split
from recfusion.diffusion import Binomial, Gaussian, Normal, Process, Steps, make_schedule
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments.train import train
from recfusion.models.abilities import fit_in_epochs
from recfusion.models.baselines.popularity import Random
from recfusion.models.recfusion.recfusion import RecFusion
from recfusion.models.recfusion.unet import RecFusionUNet
from recfusion.models.registry import MODELS, make_model
from recfusion.nets.mlp import time_embedding
from recfusion.training.batches import dense

LATER = {"recfusion-map", "recfusion-seq"}  # than the paper
FAMILY = [name for name in MODELS if name.startswith("recfusion") and name not in LATER]


def test_the_paper_s_six_variants_are_rows_of_the_registry() -> None:
    assert len(FAMILY) == 6
    assert all(isinstance(make_model(name), RecFusion) for name in FAMILY)
    assert len({str(make_model(name)) for name in FAMILY}) == 6


def test_parameters_are_those_of_the_paper() -> None:
    model = RecFusion(max_epochs=1, depth=4).fit(random_csr(4, 3416, 0.01, 0), rng=0)
    assert model.n_parameters == 1_410_218


@pytest.mark.parametrize("name", FAMILY)
def test_the_paper_s_preset_can_be_run(name: str) -> None:
    settings = {"preset": "paper", "max_epochs": 1, "picture_users": 4}
    model = make_model(name, settings)
    assert isinstance(model, RecFusion)
    assert (model.lr, model.T, model.objective) == (1e-4, 3, "published")
    model.fit(random_csr(9, 11, 0.3, 0), rng=0)


def test_the_published_early_stopping_keeps_the_first_of_small_improvements(groups: Interactions) -> None:
    parts = split(groups)
    model = RecFusion(min_improvement=1.0, patience=3, width=8).fit(parts.train, parts.valid, rng=0)
    assert model.best_epoch_ == 1


@pytest.mark.parametrize("process", ["paper-kernel", "bit-flips", "drift", "thinning"])
@pytest.mark.parametrize("objective", ["simple", "elbo", "bce-elbo", "published"])
def test_every_objective_runs_on_every_binary_process(process: str, objective: str) -> None:
    model = make_model("recfusion", {"process": process, "objective": objective, "max_epochs": 2, "width": 8})
    model.fit(random_csr(12, 9, 0.3, 0), rng=0)


@pytest.mark.parametrize("process", ["paper-kernel", "bit-flips", "drift", "thinning"])
@pytest.mark.parametrize("name", [*FAMILY, "recfusion-map"])
def test_every_variant_runs_on_every_binary_process(name: str, process: str) -> None:
    small = {"max_epochs": 1, "width": 8, "channels": 2, "levels": 2}
    if MODELS[name].load() is RecFusionUNet:
        small |= {"pixels": 2, "T": 3}
    train = random_csr(12, 9, 0.3, 0)
    for objective in ("simple", "elbo", "bce-elbo"):
        settings = {**small, "process": process, "objective": objective, "variance": "posterior"}
        scores = make_model(name, settings, text=False).fit(train, rng=0).score(train)
        assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("recfusion-var", "binary noise has no variance to predict: set variance to posterior"),
        ("recfusion-unet1d", "with process 'drift' set objective to simple, elbo or bce-elbo"),
        ("recfusion-map", "with process 'drift' set objective to simple, elbo or bce-elbo"),
        ("recfusion-unet2d", "with process 'drift' set objective to simple, elbo or bce-elbo"),
    ],
)
def test_what_drift_does_not_go_with_is_said_with_what_to_change(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_model(name, {"process": "drift"})


def test_drift_keeps_the_activity_of_every_item() -> None:
    """Option (a) as the paper's text means it: however long the noise lasts, items are as popular as before."""
    train = random_csr(4000, 5, 0.3, 0)
    model = make_model("recfusion", {"process": "drift", "schedule": "constant", "beta_high": 0.5, "max_epochs": 1})
    assert isinstance(model, RecFusion)
    model.fit(train, rng=0)
    process = model.make_process(model.means)
    noisy = process.q_sample(dense(train), process.T, torch.Generator().manual_seed(0))
    assert noisy.mean(0).numpy() == pytest.approx(dense(train).mean(0).numpy(), abs=0.03)
    assert (noisy != dense(train)).float().mean() > 0.3  # and yet little is left of a user


class Sure(Gaussian):
    """Gaussian diffusion whose reverse steps have a variance that no setting offers."""

    def p_reverse(self, out: Tensor, xt: Tensor, t: Steps) -> Normal:
        found = super().p_reverse(out, xt, t)
        return Normal(found.mean, found.stddev / 2)


class OwnNoise(RecFusion):
    """A model with processes of its own: that is all it says."""

    def make_process(self, means: Tensor) -> Process:
        schedule = make_schedule("cosine", self.T)
        return Sure(schedule) if self.process == "gaussian" else Binomial.drift(schedule, means)


@pytest.mark.parametrize("objective", ["simple", "elbo"])
@pytest.mark.parametrize("process", ["gaussian", "bit-flips"])
def test_a_subclass_may_bring_a_process_of_its_own(groups: Interactions, process: str, objective: str) -> None:
    parts = split(groups)
    settings: dict[str, Any] = {"process": process, "objective": objective, "max_epochs": 30}
    own, usual = (make(**settings).fit(parts.train, rng=0) for make in (OwnNoise, RecFusion))
    scores = own.score(parts.test.history)
    assert not np.allclose(scores, usual.score(parts.test.history), atol=1e-3)
    found = evaluate(own, parts.test, parts.train, ("ndcg@10",)).mean()["ndcg@10"]
    assert found > evaluate(Random().fit(parts.train, rng=0), parts.test, parts.train, ("ndcg@10",)).mean()["ndcg@10"]


def test_learning_lowers_the_loss(groups: Interactions) -> None:
    for name in ("recfusion", "recfusion-bin", "recfusion-var"):
        losses = [
            epoch.loss for epoch in fit_in_epochs(make_model(name, {"max_epochs": 30}), split(groups).train, rng=0)
        ]
        assert losses[-1] < 0.8 * losses[0]


def test_the_full_matrix_is_one_example(groups: Interactions) -> None:
    parts = split(groups)
    settings = {"preset": "paper", "picture_users": 0, "max_epochs": 2, "channels": 2, "levels": 3}
    model = make_model("recfusion-unet2d", settings).fit(parts.train, rng=0)
    assert isinstance(model, RecFusion)
    assert model.companions_.shape[0] == parts.train.shape[0] - 1
    assert model.score(parts.test.history[:1]).shape == (1, groups.n_items)


def test_a_matrix_too_large_for_memory_is_refused_with_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 1_000_000)
    with pytest.raises(
        InputError, match=r"A U-Net on 50 users and 400 items at once needs about 2 MB .* picture_users"
    ):
        make_model("recfusion-unet2d", {"preset": "paper", "picture_users": 0}).fit(random_csr(50, 400, 0.1, 0), rng=0)


@pytest.mark.parametrize("process", ["gaussian", "thinning"])
def test_a_learned_schedule_is_trained_and_saved_with_the_network(process: str) -> None:
    settings = {"process": process, "objective": "elbo", "learned_schedule": True, "width": 8, "max_epochs": 3}
    train = random_csr(20, 9, 0.3, 0)
    model = make_model("recfusion", {**settings, "beta_low": 0.1, "beta_high": 0.5}).fit(train, rng=0)
    assert isinstance(model, RecFusion)
    start = torch.linspace(0.1**0.5, 0.5**0.5, 3, dtype=torch.float64) ** 2
    betas = model.net_.get_submodule("noise").betas.detach()  # type: ignore[operator]
    assert ((betas > 0) & (betas < 1)).all()
    assert not torch.allclose(betas, start, atol=1e-6)
    again = make_model("recfusion", {**settings, "beta_low": 0.1, "beta_high": 0.5})
    again.load_state(model.state(), model.chosen(), 9)
    assert (again.score(train) == model.score(train)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "removed"}, "is for binary noise"),
        ({"objective": "removed", "process": "bit-flips"}, "needs process 'thinning'"),
        ({"variance": "predicted", "process": "thinning"}, "A predicted variance needs"),
        ({"variance": "predicted", "net": "unet1d"}, "A predicted variance needs"),
        ({"learned_schedule": True}, "needs objective 'elbo'"),
        ({"objective": "previous-step", "process": "drift"}, "needs process 'gaussian'"),
        ({"process": "poisson"}, "Setting process of recfusion"),
        ({"T": 0}, "T of recfusion to be at least 1"),
        ({"preset": "poster"}, "Unknown preset of recfusion 'poster': choose one of tuned, paper"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_model("recfusion", settings)


def test_a_schedule_out_of_range_is_refused_before_training() -> None:
    with pytest.raises(InputError, match=r"noise rates beta in \(0, 1\]"):
        make_model("recfusion", {"beta_high": 1.5}).fit(random_csr(5, 6, 0.4, 0), rng=0)


def test_training_on_everybody_takes_as_many_epochs_as_were_best_on_validation(groups: Interactions) -> None:
    probe = train("recfusion", groups, {"patience": 2})
    whole = train("recfusion", groups, {"patience": 2}, all_users=True)
    assert isinstance(probe.model, RecFusion)
    assert isinstance(whole.model, RecFusion)
    assert probe.model.max_epochs == 200
    assert 1 <= whole.model.max_epochs < 200


def test_a_learned_schedule_has_the_gradient_of_the_bound() -> None:
    """Zeros and ones that are drawn let no gradient through: the plain bound's is another."""
    chain: dict[str, Any] = {"process": "paper-kernel", "beta_low": 0.2, "beta_high": 0.7, "learned_schedule": True}
    model = RecFusion(**chain, objective="elbo", width=8, lr=0.05, max_epochs=2).fit(random_csr(12, 3, 0.5, 0), rng=0)
    x0, rng = torch.tensor([[1.0, 0.0, 1.0]]).expand(100_000, 3), torch.Generator().manual_seed(0)

    def gradient(loss: Callable[[Process], Tensor]) -> Tensor:
        process = model.make_process(torch.full((3,), 0.5))
        return torch.autograd.grad(loss(process), model.net_.get_submodule("noise").w)[0]  # type: ignore[arg-type]

    model.means = torch.full((3,), 0.5)
    true = gradient(lambda process: diffusion.learned_elbo(process, model.net_, x0, rng).total.mean())
    plain = gradient(lambda process: diffusion.elbo(process, model.net_, x0, rng).total.mean())
    found = gradient(lambda _: model.loss(csr([[0, 2]] * 100_000, 3), model.net_, rng))
    assert (found - true).norm() < 0.3 * (plain - true).norm()


def test_the_preset_projects_128_time_features_to_the_input() -> None:
    train = random_csr(12, 9, 0.3, 0)
    model = make_model("recfusion-t", {"preset": "paper", "max_epochs": 1, "width": 8}).fit(train, rng=0)
    assert isinstance(model, RecFusion)
    layer = model.net_.get_submodule("time_layer")
    assert isinstance(layer, nn.Linear)
    assert layer.weight.shape == (9, 128)
    x, t = dense(train), torch.full((12,), 2)
    with torch.no_grad():
        shown = x + layer(time_embedding(t, 128))
        found = model.net_(x, t)
        layer.weight.zero_()
        layer.bias.zero_()
        assert torch.allclose(model.net_(shown, t), found)
        assert not torch.allclose(model.net_(x, t), found)


def test_a_history_is_taken_for_the_first_step() -> None:
    train = random_csr(12, 9, 0.3, 0)
    model = RecFusion(time="output", T=5, width=8, max_epochs=2).fit(train, rng=0)
    with torch.no_grad():
        first, last = (model.net_(dense(train), torch.full((12,), t)).numpy() for t in (1, 5))
    assert model.score(train) == pytest.approx(first, abs=1e-6)
    assert model.score(train) != pytest.approx(last, abs=1e-3)


class Echo(nn.Module):
    """A network that gives back what it is shown."""

    def forward(self, xt: Tensor, t: Tensor) -> Tensor:
        return xt


@pytest.mark.parametrize("picture_users", [0, 2, 5])
def test_a_picture_s_scores_are_those_of_the_asked_user_s_row(picture_users: int) -> None:
    train, asked = random_csr(12, 9, 0.3, 0), random_csr(7, 9, 0.3, 1)
    model = RecFusion(net="unet2d", picture_users=picture_users, channels=1, levels=2, max_epochs=1).fit(train, rng=0)
    model.net_ = Echo()
    assert model.score(asked).tolist() == asked.toarray().tolist()
