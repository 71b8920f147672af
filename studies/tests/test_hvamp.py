"""H+Vamp: its layers, its prior and its loss against densities written out by torch."""

import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily
from torch.distributions import Normal as TorchNormal

from conftest import csr, random_csr
from hvamp import Gated, HVamp, TwoCodes
from recfusion.models.neural.vae import Annealed
from recfusion.nets.sparse import SparseLinear, SparseRows
from recfusion.training.batches import dense

ROWS = csr([[0, 3], [1, 2, 4], [5]], 6)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_net(components: int = 4) -> TwoCodes:
    torch.manual_seed(0)
    return TwoCodes(6, 5, 3, components)


def test_a_gate_of_one_half_halves_the_features_and_sparse_rows_count_as_dense_ones() -> None:
    torch.manual_seed(0)
    layer = Gated(6, 2, sparse=True)
    both = layer.both
    assert isinstance(both, SparseLinear)
    with torch.no_grad():
        both.weight[:, 2:] = 0
        both.bias[2:] = 0
    sparse, whole = layer(SparseRows.of(ROWS)), layer(dense(ROWS))
    plain = dense(ROWS) @ both.weight[:, :2] + both.bias[:2]
    torch.testing.assert_close(sparse, plain / 2)
    torch.testing.assert_close(sparse, whole)


def test_the_prior_is_the_even_mixture_of_the_pseudo_users_posteriors() -> None:
    net = small_net()
    with torch.no_grad():
        net.pseudo_users.uniform_(-0.5, 1.5, generator=rng())  # beyond the bounds on both sides
    parts = net.q2(net.pseudo_users.clamp(0, 1))
    mixture = MixtureSameFamily(Categorical(torch.ones(4)), Independent(TorchNormal(parts.mean, parts.stddev), 1))
    z2 = torch.randn(7, 3, generator=rng(1))
    expected = mixture.log_prob(z2)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(net.prior_log_prob(z2), expected, rtol=1e-4, atol=1e-4)


def test_the_loss_is_the_weighted_bound_at_one_sample_of_both_codes() -> None:
    """Every density written out by hand from the same draws: dropout 0, and a weight in the middle of its rise."""
    model = HVamp(width=5, latent=3, components=4, dropout=0.0, kl_cap=0.6, anneal_steps=4)
    model.net_ = net = small_net()
    trained = Annealed(net)
    trained.steps += 1  # the loss counts its own batch: 2 of 4 are over
    found = model.loss(ROWS, trained, rng(3))

    draws = rng(3)
    torch.rand(ROWS.nnz, generator=draws)  # for the entries that are dropped
    x = SparseRows.of(ROWS)
    q2 = net.q2(x)
    z2 = q2.mean + q2.stddev * torch.randn(3, 3, generator=draws)
    q1 = net.first_code(x, z2)
    z1 = q1.mean + q1.stddev * torch.randn(3, 3, generator=draws)
    divergence = (q1.log_prob(z1) + q2.log_prob(z2) - net.p1(z2).log_prob(z1)).sum(1) - net.prior_log_prob(z2)
    likelihood = (dense(ROWS) * net.decode(z1, z2).log_softmax(1)).sum(1)
    torch.testing.assert_close(found, (0.3 * divergence - likelihood).mean())


def test_it_is_a_bound_of_the_rows_likelihood() -> None:
    """With weight 1 the loss is on average at least -log p(x), which many draws from the prior estimate."""
    net = small_net()
    model = HVamp(width=5, latent=3, components=4, dropout=0.0, kl_cap=1.0, anneal_steps=1)
    model.net_, trained = net, Annealed(net)
    with torch.no_grad():
        bound = torch.stack([model.loss(ROWS, trained, rng(seed)) for seed in range(300)]).mean()
        component = torch.randint(4, (200_000,), generator=rng(9))
        prior = net.q2(net.pseudo_users.clamp(0, 1))
        z2 = prior.mean[component] + prior.stddev[component] * torch.randn(200_000, 3, generator=rng(10))
        first = net.p1(z2)
        logits = net.decode(first.mean + first.stddev * torch.randn(200_000, 3, generator=rng(11)), z2)
        likelihood = torch.stack([(row * logits.log_softmax(1)).sum(1).exp().mean() for row in dense(ROWS)])
    assert bound > -likelihood.log().mean() - 0.01


def test_pseudo_users_learn() -> None:
    users = []
    for lr in (1e-3, 1e-9):
        model = HVamp(width=8, latent=4, components=3, max_epochs=3, batch_size=10, anneal_steps=1, lr=lr)
        users.append(model.fit(random_csr(30, 12, 0.3, 0), rng=0).state()["net.pseudo_users"])
    assert abs(users[0] - users[1]).max() > 1e-4
