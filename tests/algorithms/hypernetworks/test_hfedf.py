"""hFedF: a round against autograd and torch's optimiser, its variants, and what each side is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import save

from tests.algorithms.compare import same
from tests.algorithms.hypernetworks.played import CLIENTS, ROSTER, WORLD, close, federation, flat, gradient, phi, played
from tests.algorithms.lies import night_params
from tests.algorithms.source_free.played import away, sent, site, states
from tests.laws.stage import HoardingParts, Stage
from tests.laws.values import raw
from tests.synthetic import NAMES, SimSite, blobs, experiment, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.hfedf import Config, Draw, autoencoder, embed, hfedf
from tideline.algorithms.hypernetworks import State, begin, embeddings
from tideline.algorithms.hypernetworks import phi as state_dict
from tideline.core.algorithm import resolve
from tideline.core.asked.world import World
from tideline.core.phase import Turn
from tideline.core.record import Nothing
from tideline.core.run import ClientId, Member, Role
from tideline.core.step import Site
from tideline.engine.coordinator.result import result_of
from tideline.engine.simulation.federation import Federation
from tideline.numerics.aggregation.hypernetwork import generate, trunk

ONE = {"rounds": 1, "server_rate": 0.01, "server_weight_decay": 0.1, "ema": 1.0}


def by_hand(state: State, replies: dict[str, Any], weights: torch.Tensor, c: dict[str, Any]) -> dict[str, torch.Tensor]:
    """theta after one step of torch's Adam on sum_i w_i g_i."""
    gradients = [gradient(state, k, reply.delta) for k, reply in sorted(replies.items())]
    parameters = {name: torch.nn.Parameter(each.clone()) for name, each in state.theta.items()}
    by = torch.optim.Adam(parameters.values(), lr=c["server_rate"], weight_decay=c["server_weight_decay"])
    for name, p in parameters.items():
        p.grad = sum((float(w) * g[name] for w, g in zip(weights, gradients, strict=True)), torch.zeros_like(p))
    by.step()
    return {name: p.detach() for name, p in parameters.items()}


def aligned(state: State, replies: dict[str, Any]) -> torch.Tensor:
    """softmax of the cosines with the mean gradient, by whole gradients."""
    g = torch.stack([flat(gradient(state, k, reply.delta)) for k, reply in sorted(replies.items())])
    return torch.nn.functional.cosine_similarity(g, g.mean(0, keepdim=True)).softmax(0)


@pytest.mark.parametrize("grad_align", [True, False])
def test_a_round_is_an_adam_step_on_the_weighed_gradients(grad_align: bool) -> None:
    """By autograd through the whole hypernetwork, from what the sites were sent and answered; people are told the weights."""
    stage, run = played("hfedf", grad_align=grad_align, **ONE)
    before, after = states(stage, run, State)[0], states(stage, run, State)[-1]
    exchange = sent(stage, run, "train")
    replies = {k: exchange[k, 1][1] for k in CLIENTS}
    for i, k in enumerate(CLIENTS):
        close(exchange[k, 1][0].model, phi(before.theta, before.theta["nu"][i]))
    weights = aligned(before, replies) if grad_align else torch.full((3,), 1 / 3)
    close(after.theta, by_hand(before, replies, weights, ONE))
    assert after.steps == 1 and after.clients == CLIENTS
    (table,) = [t["tables"] for t in stage.result(run)["phases"] if t["name"] == "train"]
    values = table["weights of the clients (GradAlign)"]["values"]
    assert torch.tensor(values).flatten().tolist() == pytest.approx(weights.tolist(), abs=1e-4)


def test_the_delta_is_what_training_added() -> None:
    """phi_i + Delta_i is the model that a site would train: its loss on the site's rows is lower."""
    stage, run = played("hfedf", rounds=1, epochs=5)
    for order, reply in sent(stage, run, "train").values():
        assert reply.delta.keys() == order.model.keys() == nets.template(WORLD).keys()
        assert any(bool(each.any()) for each in reply.delta.values())
    for reported in (o.metrics for o in stage.journal.orders(run) if "first_loss" in o.metrics):
        assert reported["loss"] < reported["first_loss"]


def test_the_moving_average_begins_after_the_warm_up() -> None:
    """Rounds up to w are as without it; then theta is a theta + (1 - a) theta_before, the moments untouched."""
    runs = {ema: played("hfedf", rounds=2, warm_up=1, ema=ema, evaluate_every=2) for ema in (1.0, 0.75)}
    plain, averaged = ([s for s in states(*each, State) if s.steps] for each in runs.values())
    assert same(plain[0].theta, averaged[0].theta)
    mixed = {n: 0.75 * w + 0.25 * plain[0].theta[n] for n, w in plain[1].theta.items()}
    close(averaged[1].theta, mixed)
    assert same(plain[1].m, averaged[1].m) and same(plain[1].v, averaged[1].v)


def test_embeddings() -> None:
    """Learned ones move, random ones are drawn anew after every step, those of autoencoders are the sites' and stay."""

    def nu(**config: Any) -> list[torch.Tensor]:
        return [state.theta["nu"] for state in states(*played("hfedf", rounds=2, **config), State)]

    learned, random = nu(), nu(embeddings="random")
    assert learned[0].equal(random[0]) and not random[-1].equal(random[0])
    assert (learned[-1] - learned[0]).abs().max() < 0.1 < (random[-1] - random[0]).abs().max()
    stage, run = played("hfedf", rounds=2, embeddings="autoencoder", embedding_size=2)
    found = states(stage, run, State)
    answered = [sent(stage, run, "embed")[k, 1][1].nu for k in CLIENTS]
    assert found[1].theta["nu"].equal(torch.stack(answered)) and found[-1].theta["nu"].equal(found[1].theta["nu"])
    assert found[1].theta["nu"].shape == (3, 2)


@pytest.mark.parametrize("inputs", [(8,), *night_params(((1, 8, 8),), ((1, 10, 9),))])
def test_an_autoencoders_embedding_by_hand(inputs: tuple[int, ...]) -> None:
    """The mean of latent vectors of rows that it was not trained on, by an autoencoder that all sites draw alike."""
    world = World(inputs=inputs, classes=3, model="lenet" if len(inputs) == 3 else "mlp")
    rows = blobs(130, 0, 5, inputs)
    order = Draw(4, torch.zeros(3))
    site = Site(Config(), world, ClientId("anna"), Role.SOURCE, rows, 1, torch.Generator().manual_seed(9))
    given = torch.randperm(130, generator=torch.Generator().manual_seed(9))
    torch.manual_seed(123)
    encoder, decoder = autoencoder(order, inputs)
    assert [tuple(w.shape) for w in encoder.parameters()][-1] == (3,)
    assert decoder(torch.zeros(2, 3)).shape == (2, *inputs)
    net = torch.nn.Sequential(encoder, decoder)
    by = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(200):
        by.zero_grad()
        torch.nn.functional.mse_loss(net(rows.x.batch(given[:100])), rows.x.batch(given[:100])).backward()
        by.step()
    found = embed.run(order, Nothing(), site).message.nu
    torch.testing.assert_close(found, encoder(rows.x.batch(given[100:])).mean(0).detach(), atol=1e-4, rtol=1e-3)


def test_few_others_are_no_mean_of_their_own() -> None:
    """Where an owner wants more rows in each answer than were left out of the training, it is the mean over all."""
    world, rows, order = World(inputs=(8,), classes=3, model="mlp"), blobs(110, 0, 5, (8,)), Draw(4, torch.zeros(3))
    site = Site(Config(), world, ClientId("anna"), Role.SOURCE, rows, 1, torch.Generator())
    seeded = [replace(site, rng=torch.Generator().manual_seed(9), least_rows=n) for n in (10, 11)]
    others, everybody = (embed.run(order, Nothing(), each).message.nu for each in seeded)
    assert not torch.equal(others, everybody)


@pytest.mark.nightly(job="numbers")
@pytest.mark.parametrize("embeddings", ["random", "autoencoder"])
def test_any_pace_of_checkpoints_gives_the_same_bytes(embeddings: str) -> None:
    """With embeddings that are not stepped in place, of a size at which the place of a row in memory would be seen."""
    config = {"rounds": 4, "embeddings": embeddings, "embedding_size": 33}
    ends = [played("hfedf", more={"checkpoint_every": pace}, **config) for pace in (1, 5)]
    assert len({stage.result(run)["state_digest"] for stage, run in ends}) == 1


@pytest.mark.parametrize("sign", [-1, *night_params(1)])
def test_the_sign_of_the_alignment(sign: int) -> None:
    """-1 weighs as eq. 9 is printed."""
    stage, run = played("hfedf", align_sign=sign, **ONE)
    before = states(stage, run, State)[0]
    replies = {k: sent(stage, run, "train")[k, 1][1] for k in CLIENTS}
    g = torch.stack([flat(gradient(before, k, reply.delta)) for k, reply in sorted(replies.items())])
    expected = (sign * torch.nn.functional.cosine_similarity(g, g.mean(0, keepdim=True))).softmax(0)
    (reported,) = [p["tables"] for p in stage.result(run)["phases"] if p["name"] == "train"]
    values = torch.tensor(reported["weights of the clients (GradAlign)"]["values"]).flatten()
    assert values.tolist() == pytest.approx(expected.tolist(), abs=1e-4)


def test_the_rest_weighs_by_rows() -> None:
    """n_i / n, of sites that have other numbers of rows."""
    stage = Stage(METHODS, sites(NAMES[:4]) | {"bert": site("bert", n=11)}, parts=HoardingParts())
    stage, run = played("hfedf", stage, rounds=1, generate=["classifier.*"], weighting="samples")
    before, after = states(stage, run, State)[0], states(stage, run, State)[-1]
    replies = [sent(stage, run, "train")[k, 1][1] for k in CLIENTS]
    assert [reply.samples for reply in replies] == [41, 11, 41]
    for name, w in before.rest.items():
        mean = sum(reply.samples / 93 * reply.delta[name] for reply in replies)
        torch.testing.assert_close(after.rest[name], w + mean)
    (reported,) = [p["tables"] for p in stage.result(run)["phases"] if p["name"] == "score"]
    assert set(reported["spread of the clients' models"]["rows"]) == {"classifier.bias", "classifier.weight"}


def test_tables_have_room_together() -> None:
    """Embeddings are left out where histograms and spread leave no room for them; the run goes on."""
    hyper = State({"nu": torch.zeros(10, 5)}, {}, {}, 0, {}, tuple(f"c{i}" for i in range(10)))
    assert set(embeddings(hyper, 50)) == {"embeddings of the clients"} and embeddings(hyper, 49) == {}


def test_notes_say_what_is_idle() -> None:
    """That the moving average never begins is said where it is so."""
    assert len(hfedf.notes(Config(rounds=10), WORLD)) == 2
    for config in (Config(rounds=11), Config(rounds=10, ema=1.0), Config(rounds=10, warm_up=5)):
        assert len(hfedf.notes(config, WORLD)) == 1


def test_the_size_of_an_embedding() -> None:
    """floor(1 + N / 4), or what is asked for."""
    assert states(*played("hfedf", rounds=0), State)[0].theta["nu"].shape == (3, 1)
    five = {"roster": dict.fromkeys((*NAMES[:4],), "source") | {"emil": "source"}}
    stage = Stage(METHODS, sites(NAMES), parts=HoardingParts())
    assert states(*played("hfedf", stage, more=five, rounds=0), State)[0].theta["nu"].shape == (5, 2)
    assert states(*played("hfedf", rounds=0, embedding_size=7), State)[0].theta["nu"].shape == (3, 7)


def test_a_part_of_the_network_is_generated_and_the_rest_averaged() -> None:
    """rest <- rest + the mean of Delta_i, or weighed by rows. It has no head, and all sites are sent the same."""
    for weighting in ("uniform", "samples"):
        stage, run = played("hfedf", rounds=1, generate=["classifier.*"], weighting=weighting)
        before, after = states(stage, run, State)[0], states(stage, run, State)[-1]
        assert sorted(n for n in before.theta if n.startswith("heads.")) == [
            *("heads.classifier.bias.bias", "heads.classifier.bias.weight"),
            *("heads.classifier.weight.bias", "heads.classifier.weight.weight"),
        ]
        exchange = [sent(stage, run, "train")[k, 1] for k in CLIENTS]
        assert all(same({n: o.model[n] for n in before.rest}, before.rest) for o, _ in exchange)
        for name, w in before.rest.items():
            mean = torch.stack([reply.delta[name] for _, reply in exchange]).mean(0)
            torch.testing.assert_close(after.rest[name], w + mean)
        assert all(hasattr(reply, "samples") == (weighting == "samples") for _, reply in exchange)


def test_buffers_are_averaged() -> None:
    """Batch norm's moments are in no head; its counters stay."""
    world = {"world": {"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}}
    stage, run = played("hfedf", more=world, rounds=1)
    before, after = states(stage, run, State)[0], states(stage, run, State)[-1]
    buffers = [name for name in before.rest if "running" in name or "num_batches" in name]
    assert sorted(before.rest) == sorted(buffers) and not any("running" in name for name in before.theta)
    exchange = [sent(stage, run, "train")[k, 1] for k in CLIENTS]
    for name in buffers:
        mean = torch.stack([reply.delta[name].double() for _, reply in exchange]).mean(0)
        torch.testing.assert_close(after.rest[name].double(), before.rest[name].double() + mean, atol=1e-6, rtol=1e-5)
    assert not any(bool(after.rest[name].any()) for name in buffers if "num_batches" in name)


def test_an_unseen_site_is_scored_with_the_mean_of_the_models_which_is_the_runs() -> None:
    """One model travels; of linear heads it is what the mean of the trunk's outputs generates."""
    stage, run = played("hfedf", rounds=1)
    after, exchange = states(stage, run, State)[-1], sent(stage, run, "score")
    (model,) = exchange["dora", 1][0].models
    outputs = trunk(after.theta, after.theta["nu"]).mean(0)
    template = nets.template(WORLD)
    close(model, generate(after.theta, outputs, {name: template[name].shape for name in template}))
    assert hfedf.run_model is not None
    close(hfedf.run_model.of(Config(rounds=1), WORLD, after), model)


def test_a_seen_site_is_scored_with_its_own_model_and_an_unseen_one_with_all() -> None:
    """unseen: each. The unseen one's accuracy is the mean of those of all clients' models, before local training."""
    stage, run = played("hfedf", rounds=1, unseen="each")
    after, exchange = states(stage, run, State)[-1], sent(stage, run, "score")
    models = [phi(after.theta, row) for row in after.theta["nu"]]
    for i, k in enumerate(CLIENTS):
        assert len(exchange[k, 1][0].models) == 1
        close(exchange[k, 1][0].models[0], models[i])
    assert len(exchange["dora", 1][0].models) == 3
    held = SimSite(sites(NAMES[:4])["dora"].open_site_data).open_site_data(WORLD, "target").held_out  # type: ignore[arg-type]
    each = []
    for model in exchange["dora", 1][0].models:
        logits = nets.loaded(WORLD, model)(held.x.all())
        each.append(float((logits.argmax(1) == held.y).double().mean()))
    reported = {c["name"]: c["accuracy"] for c in stage.result(run)["clients"]}
    assert reported["dora"] == pytest.approx(sum(each) / 3)


def test_what_people_are_told_of_a_scoring() -> None:
    """How far the clients' models lie apart, tensor by tensor; and confidences where they are asked for."""
    stage, run = played("hfedf", rounds=1, confidence=True, unseen="each")
    (reported,) = [p for p in stage.result(run)["phases"] if p["name"] == "score"]
    after = states(stage, run, State)[-1]
    models = [phi(after.theta, row) for row in after.theta["nu"]]
    table = reported["tables"]["spread of the clients' models"]
    assert set(table["rows"]) == set(nets.template(WORLD))
    for name, (value,) in zip(table["rows"], table["values"], strict=True):
        assert value == pytest.approx(float(torch.stack([m[name] for m in models]).std(0, correction=0).mean()), rel=1e-4)
    rows = {k: sum(v) for k, v in zip(NAMES[:4], reported["tables"]["confidence of right predictions"]["values"], strict=True)}
    wrong = {k: sum(v) for k, v in zip(NAMES[:4], reported["tables"]["confidence of wrong predictions"]["values"], strict=True)}
    assert rows["anna"] + wrong["anna"] == 60 and rows["dora"] + wrong["dora"] == 3 * 60


@pytest.mark.parametrize("method", ["pfedhn", *night_params("hfedf")])
def test_embeddings_are_for_admins(method: str) -> None:
    """Round by round, in results of admins and in no others."""
    stage, run = played(method, rounds=2, evaluate_every=2, embedding_size=2)
    (nu,) = [s.theta["nu"] for s in map(inner, states(stage, run, resolve(METHODS, method).state)[-1:])]
    (reported,) = [p["tables"] for p in stage.result(run)["phases"] if p["name"] == "score"]
    table = reported["embeddings of the clients"]
    assert (table["rows"], table["columns"], table["admins"]) == (list(CLIENTS), ["nu 1", "nu 2"], True)
    assert torch.tensor(table["values"]).equal(nu)
    shown = result_of(stage.journal, run, stage.clock.now(), admins=False)
    assert "embeddings of the clients" not in str(shown) and "spread of the clients" in str(shown)


def inner(state: Any) -> State:
    """The hypernetwork's part of a state."""
    return getattr(state, "hyper", state)  # type: ignore[no-any-return]


def test_no_site_is_sent_the_hypernetwork_or_an_embedding() -> None:
    """An order holds tensors of the clients' network by name, and nothing else."""
    stage, run = played("hfedf", rounds=2)
    names, nu = set(nets.template(WORLD)), states(stage, run, State)[0].theta["nu"]
    for phase in ("train", "score"):
        for order, _ in sent(stage, run, phase).values():
            for model in getattr(order, "models", None) or (order.model,):
                assert set(model) == names
                assert not any(raw(nu) in raw(w) for w in model.values())


def test_a_client_that_does_not_answer_keeps_its_embedding_in_reach() -> None:
    """The round is weighed over the others; its row gets no gradient, only what momentum and decay do."""
    waiting = {"waiting": {"min_replies": 1, "deadline": 60.0}}
    stage = federation()
    stage, run = played("hfedf", stage, away(stage, "bert", ("train", 1)), waiting, **ONE)
    before, after = states(stage, run, State)[0], states(stage, run, State)[-1]
    replies = {k: sent(stage, run, "train")[k, 1][1] for k in ("anna", "carl")}
    close(after.theta, by_hand(before, replies, aligned(before, replies), ONE))


def test_weights_that_are_brought_are_what_is_generated_first() -> None:
    """Up to a tenth of each tensor's deviation; chunked heads refuse them."""
    torch.manual_seed(3)
    brought = nets.weights_of(nets.build(WORLD))
    federated = Federation(METHODS, sites(NAMES[:4]))
    given = experiment("hfedf", ROSTER, config={"rounds": 0}) | {"weights": federated.bring([save(brought)])}
    run = federated.start(given)
    assert federated.run(run)["status"] == "completed"
    state = states(federated, run, State)[-1]  # type: ignore[arg-type]
    for row in state.theta["nu"]:
        for name, w in phi(state.theta, row).items():
            assert float((w - brought[name]).std()) < 0.3 * float(brought[name].std())


@pytest.mark.nightly(job="numbers")
@pytest.mark.parametrize(("head_init", "low", "high"), [("default", 5.0, 20.0), ("matched", 0.9, 1.2)])
def test_both_beginnings_of_the_papers_network(head_init: str, low: float, high: float) -> None:
    """Default heads generate weights that are much too large for a wide layer; matched ones begin as the network itself would."""
    world = World(inputs=(3, 32, 32), classes=7, model="inception")
    torch.manual_seed(0)
    c, rng = Config(head_init=head_init, server_optimiser="sgd"), torch.Generator().manual_seed(0)
    state = begin(c, world, (Member(ClientId("anna"), Role.SOURCE, True),), rng)
    made, own = state_dict(state, Turn(c, world, (), 1, rng), "anna"), nets.weights_of(nets.build(world))
    nets.loaded(world, made)
    widest = max(own, key=lambda name: own[name].numel())
    assert low < float(made[widest].std() / own[widest].std()) < high
    assert sum(w.numel() for w in state.theta.values()) == pytest.approx(40.8e6, rel=1e-3)


def test_equal_seeds_give_equal_bytes_with_chunked_heads() -> None:
    """As with linear ones, which the laws play."""
    ends = [played.anew("hfedf", heads="chunked", chunk=50) for _ in range(2)]
    assert len({stage.result(run)["state_digest"] for stage, run in ends}) == 1
