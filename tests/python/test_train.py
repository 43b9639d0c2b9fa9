"""examples/train, with --peers: each task's first steps through attend and through PyTorch, and whether the example sees a difference."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import attend

pytestmark = pytest.mark.peers

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TASKS = {"digits": 5, "language": 3, "filter": 5}  # steps that take seconds


@pytest.fixture
def example(torch, monkeypatch):
    """A module of examples/train by its name; one thread, because small steps on a busy machine wait for the others of PyTorch."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    threads = torch.get_num_threads(), attend.info()["threads"]
    torch.set_num_threads(1)
    yield lambda name: import_module(f"train.{name}")
    torch.set_num_threads(threads[0])
    attend.set_num_threads(threads[1])


@pytest.fixture
def new_task(example, monkeypatch):
    """A task by its name; the language model learns from shorter rows."""
    def new_task(name):
        if name == "language":
            monkeypatch.setattr(example("language"), "CONTEXT", 128)
        module, cls = example("__main__").TASKS[name]
        return getattr(example(module), cls)()

    return new_task


@pytest.mark.parametrize("name", TASKS)
def test_the_first_losses_are_pytorchs(name, new_task, example):
    task = new_task(name)
    ours, theirs, other = runs = [example("run").Run(task, which, seed, TASKS[name]) for which, seed in
                                  (("attend", 3), ("PyTorch", 3), ("PyTorch", 4))]
    example("run").train(runs)
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4) and len(ours.losses) == len(ours.seconds) == TASKS[name]
    assert ours.losses != pytest.approx(other.losses, rel=1e-4) and len(set(ours.losses)) == TASKS[name]


@pytest.mark.parametrize("name", TASKS)
def test_gradients_are_pytorchs_after_some_steps_too(name, new_task, example):
    task = new_task(name)
    run = example("run").Run(task, "attend", 0, 2)
    assert example("comparison").gradient_difference(task, run.weights) < 1e-5
    run.step()
    assert example("comparison").gradient_difference(task, run.weights) < 1e-5


def test_a_table_of_relative_biases_gets_the_gradient_of_the_expanded_one(torch, example):
    digits, generator = example("digits"), torch.Generator().manual_seed(0)
    q, k, v, dout = torch.randn(4, 8, digits.HEADS, digits.PATCHES, digits.HEAD_WIDTH, generator=generator)
    table = torch.randn(digits.HEADS, digits.REACH, digits.REACH, generator=generator, requires_grad=True)
    ours, = torch.autograd.grad(digits.attend_attention(q, k, v, table), table, dout)
    exact, = torch.autograd.grad(digits.pytorch_attention(*(x.double() for x in (q, k, v, table)), ), table, dout.double())
    assert ours.shape == table.shape and exact.abs().min() > 0
    torch.testing.assert_close(ours, exact.float(), rtol=0, atol=1e-5 * exact.abs().max().item())


def test_a_filter_for_any_size_finds_the_direction(new_task, example):
    task = new_task("filter")
    run = example("run").Run(task, "attend", 0, 400)
    example("run").train([run])
    q, r, a, b = task.truth({name: tensor.detach() for name, tensor in run.weights.items()})
    assert q @ a > 0.999 and r @ b > 0.999 and abs(a @ b) < 1e-6
    assert run.held_out().mean() < 1.2 * example("filters").NOISE ** 2


def test_clouds_have_the_sizes_and_means_that_they_say(example, torch):
    filters, directions = example("filters"), torch.eye(8)[[2, 5]]
    points, sizes, told = filters.clouds(directions, 20, (3, 9), torch.Generator().manual_seed(1), noise=0)
    assert points.shape == (20, 1, 9, 8) and {3, 9} <= set(sizes.tolist()) <= set(range(3, 10))
    means = [(cloud[0, :size, 2] * cloud[0, :size, 5]).mean().item() for cloud, size in zip(points, sizes, strict=True)]
    assert told.tolist() == pytest.approx(means, abs=1e-6)


def test_attention_that_is_slightly_wrong_is_noticed(new_task, example, monkeypatch, capsys, tmp_path):
    """Scores that are 1 % too large end in 1, though the curves look alike."""
    digits, main = example("digits"), example("__main__")
    right = digits.attend_attention
    wrong = {"attend": lambda q, k, v, table: right(1.01 * q, k, v, table), "PyTorch": digits.pytorch_attention}
    monkeypatch.setattr(digits.Digits, "attentions", wrong)
    assert main.main(["digits", "--steps", "3", "--threads", "1", "--plot", str(tmp_path / "curves.png")]) == 1
    assert len(re.findall(r"gradients for .* TOO FAR", capsys.readouterr().out)) == 2


def test_curves_that_part_further_than_seeds_do_are_noticed(example):
    comparison = example("comparison")
    curve = [3.0 - 0.01 * step for step in range(100)]
    assert comparison.windows(curve).shape == (20,) and comparison.windows(curve[:7]).shape == (7,)
    assert comparison.distance(comparison.windows(curve), comparison.windows([loss + 0.25 for loss in curve])) == pytest.approx(0.25)
    assert not comparison.Check("losses", 0.25, 0.2, "seeds").holds() and comparison.Check("losses", 0.2, 0.2, "seeds").holds()
    assert not comparison.Check("losses", float("nan"), 0.2, "seeds").holds()


def test_the_command_prints_a_table_draws_a_plot_and_no_bar_in_a_pipe(torch, tmp_path):
    path = os.pathsep.join([str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])])
    line = [sys.executable, "-m", "train", "digits", "--steps", "25", "--threads", "1", "--seed", "2", "--plot", tmp_path / "curves.svg"]
    done = subprocess.run(line, capture_output=True, text=True, encoding="utf-8", env=os.environ | {"PYTHONPATH": path}, check=False, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    assert re.search(r"^ +attend +PyTorch +PyTorch, seed 3$", done.stdout, re.MULTILINE)
    assert len(re.findall(r"holds$", done.stdout, re.MULTILINE)) == 4 and "times as fast" in done.stdout
    assert "25 steps, seed 2, 1 threads" in done.stdout and "<svg" in (tmp_path / "curves.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("only, column", [("attend", "attend"), ("pytorch", "PyTorch")])
def test_one_training_alone_has_nothing_to_compare(example, capsys, tmp_path, only, column):
    line = ["digits", "--only", only, "--steps", "2", "--threads", "1", "--plot", str(tmp_path / "curves.png")]
    assert example("__main__").main(line) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"^ +{column}$", printed, re.MULTILINE) and "holds" not in printed
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("args, message", [
    (["pictures"], "invalid choice: 'pictures'"),
    (["digits", "--steps", "0"], "argument --steps: expected a whole number from 1 to 2147483647, got 0"),
    (["--threads", "-1"], "argument --threads: expected a whole number from 1 to 1024, got -1"),
    (["--only", "jax"], "invalid choice: 'jax'"),
    (["--seed", "-1"], "argument --seed: expected a whole number from 0 to 2147483647, got -1"),
    (["--plot", "curves.txt"], "argument --plot: expected the name of a picture (.png, .svg, .pdf), got curves.txt"),
], ids=str)
def test_arguments_that_mean_nothing_are_refused(example, capsys, args, message):
    with pytest.raises(SystemExit) as refused:
        example("__main__").main(args)
    printed = capsys.readouterr()
    assert refused.value.code == 2 and message in printed.err and not printed.out
