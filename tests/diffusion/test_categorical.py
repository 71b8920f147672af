"""The categorical process against enumeration of all paths, and its two-state case against the binomial one."""

import math
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from enumeration import CHAINS, build, linear, rates
from recfusion.core.errors import InputError
from recfusion.diffusion import Bits, Categorical, States, ancestral, elbo, kl
from recfusion.diffusion.bound import bound_term
from recfusion.diffusion.process import per_example, same_step

T, K = 3, 4
SCHEDULE = linear(T, 0.2, 0.7)
SHARES = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
PROCESSES = {
    "uniform": Categorical.uniform(SCHEDULE, K, SHARES),
    "absorbing": Categorical.absorbing(SCHEDULE, K, 0, SHARES),
    "ordinal": Categorical.ordinal(SCHEDULE, K, SHARES),
    "graded": Categorical.graded(SCHEDULE, K, 0.4, SHARES),
    "towards": Categorical.towards(SCHEDULE, SHARES, SHARES),
}
ALL = pytest.mark.parametrize("name", PROCESSES)
BETAS = SCHEDULE.betas.tolist()


def one_step(name: str, beta: float, i: int, j: int) -> float:
    """The probability of a step from i to j, by the words that describe it."""
    ends = (0, K - 1)
    stay = float(i == j)
    if name == "uniform":
        return (1 - beta) * stay + beta / K
    if name == "absorbing":
        return (1 - beta) * stay + beta * float(j == 0)
    if name == "towards":
        return (1 - beta) * stay + beta * SHARES.tolist()[j]
    if name == "ordinal":
        return beta / 2 if abs(i - j) == 1 else stay * (1 - beta / (2 if i in ends else 1))
    forgotten = one_step("absorbing", beta, i, j)  # graded: nothing leaves 0, and the scale is 1..K-1
    if i == 0 or j == 0:
        return 0.4 * forgotten + 0.6 * stay
    moved = beta / 2 if abs(i - j) == 1 else stay * (1 - beta / (2 if i in (1, K - 1) else 1))
    return 0.4 * forgotten + 0.6 * moved


def path_sum(name: str, x0: int, seen: dict[int, int]) -> float:
    """The probability of all paths from x^0 that have these states at these steps."""
    found = 0.0
    for later in product(range(K), repeat=T):
        path = (x0, *later)
        if all(path[t] == state for t, state in seen.items()):
            found += math.prod(one_step(name, BETAS[t], a, b) for t, (a, b) in enumerate(pairwise(path)))
    return found


@ALL
def test_marginals_and_posteriors_are_sums_over_all_paths(name: str) -> None:
    process = PROCESSES[name]
    for t, x0, xt in product(range(1, T + 1), range(K), range(K)):
        start, end = torch.tensor([[float(x0)]]), torch.tensor([[float(xt)]])
        total = path_sum(name, x0, {t: xt})
        assert process.q_marginal(start, t).log_prob(end).exp().item() == pytest.approx(total, abs=1e-6)
        if total > 0:
            exact = [path_sum(name, x0, {t: xt, t - 1: state}) / total for state in range(K)]
            found = process.q_posterior(start, end, t).logits.softmax(-1)[0, 0]
            assert found.tolist() == pytest.approx(exact, abs=1e-6)


@ALL
def test_draws_have_the_marginals_probabilities(name: str) -> None:
    process, x0 = PROCESSES[name], torch.arange(4.0).repeat(5000)[:, None]
    xt = process.q_sample(x0, 2, torch.Generator().manual_seed(0))
    for state in range(K):
        exact = [path_sum(name, state, {2: to}) for to in range(K)]
        share = torch.bincount(xt[x0 == state].long(), minlength=K) / 5000
        assert share.tolist() == pytest.approx(exact, abs=0.03)


def all_states(n: int) -> Tensor:
    return torch.tensor(list(product(range(K), repeat=n)), dtype=torch.float64)


class Net:
    """A small random network (x^t, t) -> logits of x^0."""

    def __init__(self, n: int) -> None:
        rng = torch.Generator().manual_seed(0)
        self.inner = torch.randn(n + 1, 8, generator=rng, dtype=torch.float64)
        self.outer = torch.randn(8, n * K, generator=rng, dtype=torch.float64)

    def __call__(self, xt: Tensor, t: Tensor) -> Tensor:
        features = torch.cat([xt.double(), t[:, None].double()], 1) / 3
        return (torch.tanh(features @ self.inner) @ self.outer).reshape(len(xt), -1, K).to(xt.dtype)


def exact_likelihood(process: Categorical, net: Net, n: int) -> Tensor:
    """p(x^0) of every x^0, by summing over all x^1..x^T."""
    states = all_states(n)
    density = process.prior(states.shape, torch.float64).log_prob(states).sum(1).exp()
    for t in range(process.T, 0, -1):
        steps = same_step(t, states)
        log_p = process.p_reverse(net(states, steps), states, steps).logits.log_softmax(-1)  # (from, entry, K)
        chosen = torch.stack([log_p[:, entry][:, states[:, entry].long()] for entry in range(n)]).sum(0)
        density = density @ chosen.exp()
    return density


@ALL
def test_the_bound_lies_above_the_exact_likelihood_and_its_estimate_is_unbiased(name: str) -> None:
    process, net, states = PROCESSES[name], Net(2), all_states(2)
    density = exact_likelihood(process, net, 2)
    assert density.sum().item() == pytest.approx(1)
    exact = per_example(kl(process.q_marginal(states, T), process.prior(states.shape, torch.float64)))
    for t in range(1, T + 1):
        start, xt = states.repeat_interleave(len(states), 0), states.repeat(len(states), 1)
        steps = same_step(t, xt)
        weight = process.q_marginal(start, steps).log_prob(xt).sum(1).exp()
        term = bound_term(process, net, start, xt, steps)
        exact = exact + (weight * term).reshape(len(states), -1).sum(1)
    assert (exact >= -density.log() - 1e-9).all()
    many = states.repeat(300, 1)
    for steps_drawn in ("all", 2):
        found = elbo(process, net, many, torch.Generator().manual_seed(0), steps_drawn).total
        each = found.reshape(300, -1)
        assert ((each.mean(0) - exact).abs() < 5 * each.std(0) / 300**0.5 + 1e-6).all()


@ALL
def test_samples_have_the_models_exact_distribution(name: str) -> None:
    process, n = PROCESSES[name], 20_000
    probability = exact_likelihood(process, Net(2), 2)
    sample = ancestral(process, Net(2), (n, 2), torch.Generator().manual_seed(0))
    share = torch.bincount((sample @ torch.tensor([4.0, 1.0])).long(), minlength=16) / n
    assert ((share - probability).abs() < 4.5 * (probability * (1 - probability) / n).sqrt() + 1e-4).all()


@pytest.mark.parametrize("chain", CHAINS)
def test_two_states_are_the_binomial_process(chain: str) -> None:
    schedule = linear(T, 0.2, 0.7)
    u, d = (torch.tensor(values, dtype=torch.float64) for values in rates(chain, schedule))
    pairs = Categorical.binomial(u, d, 0.3)
    bits = pairs.as_binomial()
    named = build(chain, schedule)
    x0, xt = (torch.tensor(rows, dtype=torch.float64)[:, None] for rows in ([0.0, 0, 1, 1], [0.0, 1, 0, 1]))
    logit = torch.linspace(-2, 2, 4, dtype=torch.float64)[:, None]
    out = torch.stack([torch.zeros_like(logit), logit], -1)

    def ones(found: States) -> Tensor:
        return found.logits.softmax(-1)[..., 1]

    def probability(found: Bits) -> Tensor:
        return found.probs

    for t in range(1, T + 1):
        assert torch.allclose(ones(pairs.q_marginal(x0, t)), probability(named.q_marginal(x0, t)))
        assert torch.allclose(ones(pairs.q_step(x0, t)), probability(named.q_step(x0, t)))
        assert torch.allclose(ones(pairs.q_posterior(x0, xt, t)), probability(named.q_posterior(x0, xt, t)))
        assert torch.allclose(ones(pairs.p_reverse(out, xt, t)), probability(named.p_reverse(logit, xt, t)))
        term = bound_term(pairs, lambda *_: out, x0, xt, same_step(t, x0))
        assert torch.allclose(term, bound_term(bits, lambda *_: logit, x0, xt, same_step(t, x0)))
    assert torch.allclose(ones(pairs.prior((2, 3), torch.float64)), bits.prior((2, 3), torch.float64).probs)
    assert torch.allclose(pairs.x0_error(out, x0), bits.x0_error(logit, x0))


def test_the_mean_of_states_is_the_expected_grade() -> None:
    found = States(torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log())
    assert found.mean.item() == pytest.approx(2.0)


def test_states_and_chains_that_make_no_sense_are_refused() -> None:
    process = PROCESSES["uniform"]
    for wrong in (4.0, -1.0, 1.5):
        with pytest.raises(InputError, match=rf"states 0\.\.3, got {wrong:g}"):
            process.check_data(torch.tensor([[0.0, wrong]]))
    with pytest.raises(InputError, match="probabilities with sum 1"):
        Categorical(torch.full((2, 3, 3), 0.5))
    with pytest.raises(InputError, match=r"\(T, K, K\)"):
        Categorical(torch.zeros(3, 3))
    with pytest.raises(InputError, match="positive and of sum 1"):
        Categorical.uniform(SCHEDULE, 2, torch.tensor([1.0, 0.0]))
    with pytest.raises(InputError, match=r"absorbing state in 0\.\.2, got 3"):
        Categorical.absorbing(SCHEDULE, 3, 3)
    with pytest.raises(InputError, match=r"forget in \[0, 1\]"):
        Categorical.graded(SCHEDULE, 3, 1.5)
    with pytest.raises(InputError, match="two states"):
        process.as_binomial()
