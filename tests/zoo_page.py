"""What the zoo shows, one line a network, and the page that holds them: `PYTHONPATH=src python tests/zoo_page.py`."""

import json
import re
import tempfile
from collections import Counter
from pathlib import Path

import torch
from torch import nn

import posterity
import zoo
import zoo_more
import zoo_transformers
from common import generator, seeded

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "zoo.md"
ZOO = {**zoo.ZOO, **zoo_more.ZOO, **zoo_transformers.ZOO}
HEADER = """# The zoo

Every network here was converted by `IBNN` (noise on the inputs of its layers) and by `BayesByBackprop` (all weights
drawn that require a gradient), trained for a step, drawn from, saved, loaded into a network with other weights, and
predicted the same. The suite writes this page (`PYTHONPATH=src python tests/zoo_page.py`) and checks every line of it.
The networks of Hugging Face families are small, with random weights, built from configurations.

- **uncertain**: the share of the parameters that differ between drawn functions.
- **fixed under IBNN**: what has no noise. Biases and norms are points in the method (`bias_noise=True` or
  `noise="both"` reach biases). What goes into an embedding is a whole number, which cannot be multiplied: the layer
  after it carries the noise. The inputs of a recurrent layer carry noise, its state and the layers above do not.
  Other names are those of modules that hold vectors or numbers of their own (tokens, scales).
- **noise in training**: fresh for each row, or at how many places it is one for the whole batch, because the rows
  cannot be told apart there or the network uses a weight without calling a layer (bare matrices, the output
  projection of torch's attention).
- **draws**: all functions at once, or one by one where torch cannot vectorise the network. What comes before the
  first uncertain layer is computed once either way.

`posterior.describe()` says the same of any network, by name. `layers=` chooses what is uncertain, for every method: a
name pattern (`"encoder.*"`, or the name of a module that holds layers), a type (`nn.Conv2d`), several of these,
`"first"`, `"last"`, or a function of a module's name and the module. A layer of another type than torch's carries
noise once `posterity.layers.register(MyLayer, inputs={"x": "in_features"})` tells the size of its input.
"""
COLUMNS = ["network", "parameters", "uncertain: IBNN", "BbB", "fixed under IBNN", "noise in training", "draws"]


def examine(name: str) -> str:
    """Put a network through everything, and give its line of the page."""
    make, inputs = ZOO[name]
    node, shares, draws = None, [], []
    for method in (posterity.IBNN, posterity.BayesByBackprop):
        posterior, functions = check(method, make, inputs())
        node = node or posterior
        shares.append(share(posterior))
        draws.append("one by one" if functions.loops or functions._must_loop() else "at once")
    total = sum(p.numel() for p in seeded(make).parameters())
    both = draws[0] if draws[0] == draws[1] else f"{draws[0]} (BbB {draws[1]})"
    cells = [name, f"{total:,}", f"{shares[0]:.0%}", f"{shares[1]:.0%}", fixed(node), shared(node), both]
    return f"| {' | '.join(cells)} |"


def check(method, make, x):
    """A posterior of a network, trained for a step, and functions of it: they differ, and come back from a folder."""
    network = seeded(make)
    parameters = {key for key, _ in network.named_parameters()}
    posterior = method(network, seed=0).train()
    posterior.likelihood = posterity.Gaussian(std=1.0)
    trained = [p for p in posterior.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=1e-3)
    y = torch.zeros(posterior(x, generator(1)).shape[1:])
    posterior.loss(x, y, size=100, beta=0.0, generator=generator(2)).backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in posterior.variational())
    loss = posterior.loss(x, y, size=100, generator=generator(2))
    loss.backward()
    grads = [p.grad for p in trained if p.grad is not None]
    assert all(bool(g.isfinite().all()) for g in (loss.detach(), *grads))
    optimiser.step()
    posterior.eval()
    functions = posterior.draw(3, generator(3))
    outputs = functions(x)
    assert bool(outputs.isfinite().all())
    assert bool((outputs.std(0) > 0).any())
    description = posterior.describe()
    assert parameters <= {entry.name for entry in description}
    assert all(entry.reason for entry in description)
    with tempfile.TemporaryDirectory() as folder:
        posterity.save(posterior, folder)
        loaded = posterity.load(folder, seeded(make, 1))
    torch.testing.assert_close(loaded.draw(3, generator(3))(x), outputs, rtol=1e-4, atol=1e-5)
    mine, yours = (posterity.predict(p, x, 2, generator(4)).mean for p in (posterior, loaded))
    torch.testing.assert_close(yours, mine, rtol=1e-4, atol=1e-5)
    assert ties(loaded.network) == ties(network)
    return posterior, functions


def ties(network: nn.Module) -> list[list[str]]:
    """The names that share a parameter."""
    names: dict[int, list[str]] = {}
    for name, p in network.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(name)
    return sorted(names.values())


def share(posterior) -> float:
    """The share of the parameters that differ between functions, a tied one counted once."""
    uncertain = set(posterior.describe().uncertain)
    sizes, drawn = {}, set()
    for name, p in posterior.network.named_parameters(remove_duplicate=False):
        sizes[id(p)] = p.numel()
        drawn |= {id(p)} if name in uncertain else set()
    return sum(sizes[key] for key in drawn) / sum(sizes.values())


def fixed(posterior) -> str:
    """What is not uncertain, most numbers first."""
    sizes: Counter[str] = Counter()
    uncertain = set(posterior.describe().uncertain)
    drawn = {id(p) for name, p in posterior.network.named_parameters(remove_duplicate=False) if name in uncertain}
    own = {name: p for name, p in posterior.network.named_parameters() if id(p) not in drawn}
    for name, reason in posterior.describe().fixed.items():
        if name in own:
            found = re.match(r"(?:a|the input of an) (\w+) (?:has|is)", reason)
            kind = found[1] if found else "biases" if "bias" in name else "recurrent weights"
            sizes[kind if found or reason.startswith("a point") else reason] += own[name].numel()
    return ", ".join(kind for kind, _ in sizes.most_common()) or "–"


def shared(posterior) -> str:
    """For how many places the noise of training is one for the batch."""
    places = [site for site in posterior.sites if not site.missing]
    some = sum(bool(site.shared or site.direct or site.inner) for site in places)
    return f"shared at {some} of {len(places)}" if some else "each row"


def versions() -> str:
    """What the page was written with."""
    import transformers

    return f"Written with torch {torch.__version__.partition('+')[0]} and transformers {transformers.__version__}."


def timm() -> str:
    """What the recorded run over timm's architectures showed."""
    path = ROOT / "benchmarks" / "results" / "timm.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    facts = next(line["machine"] for line in lines if "machine" in line)
    records = {line["name"]: line for line in lines if "name" in line}.values()
    status = Counter(record["status"] for record in records)
    fine = [record for record in records if record["status"] == "pass"]
    shares = [record["uncertain"] for record in fine]
    return f"""
## timm

`python -m benchmarks.timm_zoo run` puts `IBNN` on every architecture of timm, with random weights: it is converted,
trained for a step, and two functions are drawn, which must be finite and differ. With timm {facts["timm"]} on an
{facts["gpu"]} (torch {facts["torch"]}), **{status["pass"]} of {len(records) - status["skipped"]} pass**;
{status["skipped"]} of more than 300 million parameters were not tried.
Between {min(shares):.0%} and {max(shares):.0%} of the parameters are uncertain, and
{sum(record["vectorised"] for record in fine)} networks compute all draws at once. The record is
`benchmarks/results/timm.jsonl`.
"""


def page(lines: list[str]) -> str:
    """The whole page."""
    peers = (
        f"{len(zoo.ZOO)} on which peers were measured, {len(zoo_more.ZOO)} more of torch's layers and of their uses, "
    )
    summary = f"{len(lines)} networks: {peers}{len(zoo_transformers.ZOO)} families of transformers. {versions()}"
    table = [f"| {' | '.join(COLUMNS)} |", "|---|--:|--:|--:|---|---|---|", *lines]
    return "\n".join([HEADER, summary, "", *table, timm()])


if __name__ == "__main__":
    torch.set_num_threads(1)
    PAGE.write_text(page([examine(name) for name in ZOO]))
