"""Fitting a dictionary to one client: the steps, the optimisers, and what the movement of atoms tells of alpha."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.numerics.clouds import atoms, client, normal, one_hot, seeded, simplex_point
from tests.numerics.examples import for_all
from tideline.numerics.labels.softmax import project
from tideline.numerics.transport import dictionary


def equal_alpha(K: int) -> Tensor:
    return torch.full((K,), 1 / K, dtype=torch.float64)


def fitted(p: dictionary.Dictionary, alpha: Tensor, s: dictionary.Fit, seed: int = 0, labelled: bool = True) -> dictionary.Fitted:
    """From fresh moments, on 40 samples."""
    z_q, y_q = client(40, p.z.shape[-1], p.y.shape[-1], seed + 50)
    return dictionary.fit(p, alpha, dictionary.fresh(p, s.optimiser), z_q, y_q if labelled else None, s, seeded(seed))


@for_all(
    15,
    *(st.integers(1, 3), st.sampled_from(dictionary.OPTIMISERS), st.booleans(), st.floats(1e-3, 2.0), st.integers(0, 10_000)),
    st.sampled_from(["atom", "normal"]),
)
def test_alpha_and_labels_stay_on_the_simplex(K: int, optimiser: str, labelled: bool, rate: float, seed: int, start: str) -> None:
    p = atoms(K, 12, 3, 3, seed)
    for epochs, batch in ((1, 12), (2, 6)):
        f = fitted(p, equal_alpha(K), dictionary.Fit(batch, epochs, rate, optimiser=optimiser, start=start), seed, labelled)
        for on_simplex in (f.alpha, f.dictionary.y):
            assert float(on_simplex.min()) >= 0
            torch.testing.assert_close(on_simplex.sum(-1), torch.ones_like(on_simplex[..., 0]), rtol=0, atol=1e-12)


def test_mini_batches_are_contiguous_within_classes() -> None:
    """Twelve points of three classes in mini-batches of six, then in one of nine and a shorter one; every point once."""
    assert [rows.tolist() for rows in dictionary.slices(12, 3, 6)] == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]
    assert [rows.tolist() for rows in dictionary.slices(12, 3, 9)] == [[0, 1, 2, 4, 5, 6, 8, 9, 10], [3, 7, 11]]
    assert [len(rows) for rows in dictionary.slices(6, 3, 60)] == [6]


def test_labelled_draws_are_balanced() -> None:
    """Equal shares of the classes that are there, in their order; a class without samples is left out."""
    of = torch.tensor([2, 0, 2, 2, 0, 2])
    z = torch.arange(6.0)[:, None]
    drawn, y = dictionary.Pool.of(z, one_hot(of, 3)).draw(9, seeded(0))
    assert y is not None
    assert y.argmax(-1).tolist() == [0, 0, 0, 2, 2, 2]
    assert torch.equal(of[drawn.flatten().long()], y.argmax(-1))


def test_draws_reach_every_sample_and_no_other() -> None:
    """With replacement, uniformly: 6000 draws of 3 samples a class, each near its share."""
    of = torch.arange(6) % 2
    drawn, _ = dictionary.Pool.of(torch.arange(6.0)[:, None], one_hot(of, 2)).draw(6000, seeded(1))
    counts = torch.bincount(drawn.flatten().long(), minlength=6)
    assert int((counts - 1000).abs().max()) < 150
    unlabelled, none = dictionary.Pool.of(torch.arange(6.0)[:, None], None).draw(6000, seeded(1))
    assert none is None
    assert int((torch.bincount(unlabelled.flatten().long(), minlength=6) - 1000).abs().max()) < 150


def by_hand(
    p: dictionary.Dictionary, alpha: Tensor, s: dictionary.Fit, z_q: Tensor, y_q: Tensor | None
) -> tuple[dictionary.Dictionary, Tensor, float]:
    """Algorithm 2 with torch's own optimisers over whole atoms; autograd's place is taken by the gradients that were tested."""
    z, logits, a = p.z.clone().requires_grad_(), dictionary.logits_of(p.y).requires_grad_(), alpha.clone().requires_grad_()
    groups = [{"params": [x], "lr": rate} for x, rate in zip((z, logits, a), s.rates, strict=True)]
    optimiser: torch.optim.Optimizer = torch.optim.SGD(groups) if s.optimiser == "sgd" else torch.optim.Adam(groups)
    rng, pool, losses = seeded(0), dictionary.Pool.of(z_q, y_q), []
    for _ in range(s.epochs):
        losses = []
        for rows in dictionary.slices(*p.y.shape[1:], s.batch):
            batch = dictionary.Dictionary(z.detach()[:, rows], dictionary.soft_labels(logits.detach()[:, rows]))
            f = dictionary.loss(batch, a.detach(), *pool.draw(len(rows), rng), s, rng)
            z.grad, logits.grad = torch.zeros_like(z), torch.zeros_like(logits)
            z.grad[:, rows], logits.grad[:, rows], a.grad = f.z, f.logits, f.alpha
            optimiser.step()
            with torch.no_grad():
                a.copy_(project(a))
            losses.append(float(f.value))
    return dictionary.Dictionary(z.detach(), dictionary.soft_labels(logits.detach())), a.detach(), sum(losses) / len(losses)


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
@pytest.mark.parametrize("labelled", [True, False])
def test_it_is_torchs_optimiser(optimiser: str, labelled: bool) -> None:
    """Three epochs of two mini-batches, a rate each for z, labels and alpha: atoms, alpha and loss as by hand."""
    p, (z_q, y_q) = atoms(3, 12, 4, 3, 1), client(30, 4, 3, 2)
    s = dictionary.Fit(6, 3, rate_z=0.05, rate_y=0.1, rate_alpha=0.02, optimiser=optimiser)
    f = dictionary.fit(p, equal_alpha(3), dictionary.fresh(p, optimiser), z_q, y_q if labelled else None, s, seeded(0))
    expected, alpha, mean_loss = by_hand(p, equal_alpha(3), s, z_q, y_q if labelled else None)
    torch.testing.assert_close(f.dictionary.z, expected.z, rtol=0, atol=1e-9)
    torch.testing.assert_close(f.dictionary.y, expected.y, rtol=0, atol=1e-9)
    torch.testing.assert_close(f.alpha, alpha, rtol=0, atol=1e-9)
    assert f.loss == pytest.approx(mean_loss, rel=1e-9)


def test_rows_are_adam_where_the_batch_is_everything() -> None:
    p = atoms(2, 12, 4, 3, 1)
    dense, rows = (fitted(p, equal_alpha(2), dictionary.Fit(12, 4, 0.05, optimiser=o)) for o in ("adam", "rows"))
    torch.testing.assert_close(rows.dictionary.z, dense.dictionary.z, rtol=0, atol=1e-12)
    torch.testing.assert_close(rows.alpha, dense.alpha, rtol=0, atol=1e-12)


def test_rows_move_with_their_mini_batch_alone() -> None:
    """An epoch of two mini-batches takes one step with each row and two with alpha; dense Adam takes two with all."""
    p = atoms(2, 12, 4, 3, 1)
    s = dictionary.Fit(6, rate=0.05)
    rows, dense = (fitted(p, equal_alpha(2), replace(s, optimiser=o)) for o in ("rows", "adam"))
    assert rows.moments.row_steps.tolist() == [1] * 12
    assert dense.moments.row_steps.tolist() == [2] * 12
    assert int(rows.moments.alpha_steps) == int(dense.moments.alpha_steps) == 2
    # Adam's first step is the rate, whatever the gradient; a second one follows where moments move alone.
    first, second = next(iter(dictionary.slices(12, 3, 6))), list(dictionary.slices(12, 3, 6))[1]
    moved = (rows.dictionary.z - p.z).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 0.05), rtol=1e-3, atol=0)
    assert float((dense.dictionary.z - p.z)[:, first].abs().min()) > 0.05
    assert float((dense.dictionary.z - p.z)[:, second].abs().max()) < 0.05


@pytest.mark.parametrize("optimiser", dictionary.OPTIMISERS)
def test_two_fits_are_one_longer_fit(optimiser: str) -> None:
    """Moments and generator carry everything over; atoms cross as probabilities."""
    p, (z_q, y_q) = atoms(2, 12, 4, 3, 3), client(30, 4, 3, 4)
    s = dictionary.Fit(6, 1, 0.05, optimiser=optimiser)
    rng = seeded(0)
    first = dictionary.fit(p, equal_alpha(2), dictionary.fresh(p, optimiser), z_q, y_q, s, rng)
    second = dictionary.fit(first.dictionary, first.alpha, first.moments, z_q, y_q, s, rng)
    whole = dictionary.fit(p, equal_alpha(2), dictionary.fresh(p, optimiser), z_q, y_q, replace(s, epochs=2), seeded(0))
    torch.testing.assert_close(second.dictionary.z, whole.dictionary.z, rtol=0, atol=1e-9)
    torch.testing.assert_close(second.dictionary.y, whole.dictionary.y, rtol=0, atol=1e-9)
    torch.testing.assert_close(second.alpha, whole.alpha, rtol=0, atol=1e-9)


@pytest.mark.parametrize("optimiser", dictionary.OPTIMISERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_arguments_are_left_and_seeds_repeat(optimiser: str, dtype: torch.dtype) -> None:
    """Nothing is changed in place, the same seed gives the same bits, and the dtype is kept."""
    whole = atoms(2, 12, 4, 3, 3)
    p = dictionary.Dictionary(whole.z.to(dtype), whole.y.to(dtype))
    z_q, y_q = (x.to(dtype) for x in client(30, 4, 3, 4))
    alpha, moments = equal_alpha(2).to(dtype), dictionary.fresh(p, optimiser)
    arguments = [p.z, p.y, alpha, z_q, y_q, *(getattr(moments, f.name) for f in fields(moments))]
    before = [x.clone() for x in arguments]
    first, second = (
        dictionary.fit(p, alpha, moments, z_q, y_q, dictionary.Fit(6, 2, optimiser=optimiser), seeded(1)) for _ in range(2)
    )
    assert all(torch.equal(x, b) for x, b in zip(arguments, before, strict=True))
    assert torch.equal(first.dictionary.z, second.dictionary.z)
    assert torch.equal(first.alpha, second.alpha)
    assert first.dictionary.z.dtype is first.dictionary.y.dtype is first.alpha.dtype is first.moments.z1.dtype is dtype


def test_the_loss_falls() -> None:
    p = atoms(2, 12, 4, 3, 5)
    one, many = (fitted(p, equal_alpha(2), dictionary.Fit(6, epochs, 0.05)) for epochs in (1, 20))
    assert many.loss < 0.6 * one.loss


def test_progress_is_told() -> None:
    p, (z_q, y_q) = atoms(2, 12, 4, 3, 5), client(9, 4, 3, 4)
    told: list[float] = []
    dictionary.fit(p, equal_alpha(2), dictionary.fresh(p), z_q, y_q, dictionary.Fit(6, 2), seeded(0), told.append)
    assert told == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("optimiser", dictionary.OPTIMISERS)
def test_a_source_that_lacks_a_class(optimiser: str) -> None:
    p, (z_q, y_q) = atoms(2, 12, 4, 3, 5), client(30, 4, 3, 4)
    kept = y_q.argmax(-1) != 1
    f = dictionary.fit(
        p, equal_alpha(2), dictionary.fresh(p, optimiser), z_q[kept], y_q[kept], dictionary.Fit(6, optimiser=optimiser), seeded(0)
    )
    assert bool(torch.isfinite(f.dictionary.z).all())


def recovered(p: dictionary.Dictionary, f: dictionary.Fitted) -> Tensor:
    """Who sees an atom's points before and after guesses alpha from how far they went."""
    lengths = (f.dictionary.z - p.z).flatten(1).norm(dim=1)
    return lengths / lengths.sum()


@for_all(10, st.integers(2, 4), st.integers(0, 1000))
def test_a_plain_gradient_step_tells_alpha(K: int, seed: int) -> None:
    """With one mini-batch of all points, and as many in the barycenter, every atom's gradient is alpha_k times one and the same
    gradient in another order: its length gives alpha away."""
    p, alpha = atoms(K, 12, 4, 3, seed), simplex_point(K, seed)
    f = fitted(p, alpha, dictionary.Fit(12, 1, 0.05, optimiser="sgd"), seed)
    torch.testing.assert_close(recovered(p, f), alpha, rtol=0, atol=1e-9)


@pytest.mark.parametrize("optimiser", ["adam", "rows"])
def test_adam_does_not_tell_alpha(optimiser: str) -> None:
    """Its first step has the same length in every coordinate, whatever the weight."""
    p, alpha = atoms(3, 12, 4, 3, 0), torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    guess = recovered(p, fitted(p, alpha, dictionary.Fit(12, 1, 0.05, optimiser=optimiser)))
    torch.testing.assert_close(guess, equal_alpha(3), rtol=0, atol=1e-3)
    assert float((guess - alpha).abs().max()) > 0.3


@pytest.mark.parametrize("optimiser", dictionary.OPTIMISERS)
def test_an_atom_without_weight_does_not_move(optimiser: str) -> None:
    """Under no optimiser, from fresh moments: what any of them tells."""
    p, alpha = atoms(3, 12, 4, 3, 0), torch.tensor([0.6, 0.0, 0.4], dtype=torch.float64)
    f = fitted(p, alpha, dictionary.Fit(12, 1, 0.05, optimiser=optimiser))
    assert torch.equal(f.dictionary.z[1], p.z[1])
    torch.testing.assert_close(f.dictionary.y[1], p.y[1], rtol=0, atol=1e-12)
    assert float((f.dictionary.z - p.z)[[0, 2]].abs().amax((1, 2)).min()) > 0


def test_golden() -> None:
    """Worked by hand: two points, one class, one atom. B is the atom; the data are its points moved by 1, so df/dz_i = -1."""
    p = dictionary.Dictionary(torch.tensor([[[0.0], [4.0]]], dtype=torch.float64), torch.ones(1, 2, 1, dtype=torch.float64))
    f = dictionary.loss(p, equal_alpha(1), p.z[0] + 1, None, dictionary.Fit(2), seeded(0))
    assert float(f.value) == 1.0
    assert f.z.flatten().tolist() == [-1.0, -1.0]
    assert float(f.alpha) == pytest.approx(-4.0)
    data = torch.full((1, 1), 2.0, dtype=torch.float64)
    step = dictionary.fit(
        p, equal_alpha(1), dictionary.fresh(p, "sgd"), data, None, dictionary.Fit(2, 1, 0.5, optimiser="sgd"), seeded(0)
    )
    assert step.dictionary.z.flatten().tolist() == [1.0, 3.0]
    assert (step.loss, step.alpha.tolist()) == (4.0, [1.0])


def test_bad_arguments() -> None:
    p, (z_q, y_q) = atoms(2, 12, 4, 3, 5), client(9, 4, 3, 4)
    good = {"z_q": z_q, "y_q": y_q, "alpha": equal_alpha(2), "settings": dictionary.Fit(6)}
    bad = {
        "multiples of the 3 classes": {"settings": dictionary.Fit(7)},
        "rows of 4 features": {"z_q": normal(9, 5, seed=0)},
        "at least one": {"z_q": z_q[:0], "y_q": y_q[:0]},
        "The labels are of shape": {"y_q": y_q[:, :2]},
        "there are 2 atoms": {"alpha": equal_alpha(3)},
        "it is one of adam, rows, sgd": {"settings": dictionary.Fit(6, optimiser="newton")},
    }
    for sentence, change in bad.items():
        with pytest.raises(ValueError, match=sentence):
            dictionary.fit(dictionary=p, moments=dictionary.fresh(p), rng=seeded(0), **{**good, **change})  # type: ignore[arg-type]


def test_divergence_is_told() -> None:
    """Features that overflow end the fit with a sentence, not with NaN in the atoms."""
    p = atoms(2, 12, 4, 3, 5)
    with pytest.raises(ValueError, match="not finite"):
        fitted(p, equal_alpha(2), dictionary.Fit(12, 50, 1e200, optimiser="sgd"))
