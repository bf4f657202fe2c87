"""Reported faults of configuration, by the id of their case: what is mistyped is refused before anything starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transformer.cli import evaluate, train

MISTAKES = [
    (("optim.larning_rate=1",), "`optim` is not a setting; did you mean `optimizer`?"),
    (("+optim.larning_rate=1",), "`optim` is not a setting; did you mean `optimizer`?"),
    (("optimizer.larning_rate=1",), "`optimizer.larning_rate` is not a setting; did you mean `learning_rate`?"),
    (("model.n_head=4",), "`model.n_head` is not a setting; did you mean `num_heads`?"),
    (("trainer.max_stesp=5",), "`trainer.max_stesp` is not a setting; did you mean `max_steps`?"),
    (("data.batch_size=abc",), "`data.batch_size` is not a setting; known here: "),
    (("data.num_train=abc",), "`data.num_train` must be a valid integer, but is 'abc'."),
    (("model.dropout=1.5",), "`model.dropout` must be less than 1, but is 1.5."),
    (("model.num_heads=7",), "`num_heads` must divide `d_model` (128), but is 7."),
    (("trainer.max_steps='5'",), "`trainer.max_steps` must be a valid integer, but is '5'."),
    (("experiment=translation", "model=transformer_tinny"), "is transformer_tinny (did you mean transformer_tiny?)."),
    (("model=lm_tiny",), "`model=...` needs an experiment to go with: experiment=translation for sentence pairs"),
    (("data=hub_text",), "`data=...` needs an experiment to go with: "),
    (("experiment=phrases",), "but is phrases (did you mean phrases_en_de?)."),
    (("experiment=python_docs", "data=phrases_en_de"), "`data.name: phrases` gives sentence pairs, which need `model"),
    (("optimizer.name=adam",), "`optimizer.name` must be one of 'adamw', 'muon', but is 'adam'."),
    (("scheduler.name=noam",), "`scheduler.name` must be one of 'inverse_sqrt', 'cosine'"),
    (("checkpoint.monitor=validation/blue",), "but is 'validation/blue'."),
    (("experiment=tinyshakespeare_char",), "`data.train` must be given: data.train=..."),
    (("trainer.max_steps=null",), "one of `trainer.max_steps` and `trainer.max_epochs` must be given."),
    (("seed=1,2",), "several values of one setting, as in seed=1,2, need -m: one run for each."),
    (("seed=[1",), ""),
    (("--config-dir", "nowhere"), "--config-dir must be a folder, but nowhere is none."),
    (("resume=nowhere",), "nowhere is not a run's folder: it has no config.yaml."),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(given) for given, _ in MISTAKES])
def test_CFG_01_a_mistake_ends_the_command_naming_the_key(
    run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr(train, "_train", lambda *_: pytest.fail("training began"))
    result = run_command(train.main, *arguments)
    assert result.status == 2
    assert result.err.startswith("error: ")
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    assert result.out == ""
    assert list(Path.cwd().iterdir()) == []


def test_CFG_01_all_mistakes_are_told_at_once(run_command: Callable[..., Any]) -> None:
    result = run_command(train.main, "model.n_head=4", "trainer.max_stesp=5")
    assert result.status == 2
    assert "`model.n_head`" in result.err
    assert "`trainer.max_stesp`" in result.err


@pytest.mark.parametrize("values", ["1,abc", "abc,1", "1,2,-1"])
def test_CFG_01_a_sweep_with_one_mistake_starts_no_job(
    run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, values: str
) -> None:
    monkeypatch.setattr(train, "_train", lambda *_: pytest.fail("training began"))
    result = run_command(train.main, "-m", f"seed={values}")
    assert result.status == 2
    assert "`seed` must be " in result.err
    assert list(Path.cwd().iterdir()) == []


def test_CFG_01_resuming_cannot_be_swept(run_command: Callable[..., Any]) -> None:
    (Path.cwd() / "config.yaml").touch()
    result = run_command(train.main, "-m", "resume=.", "seed=1,2")
    assert (result.status, result.err) == (
        2,
        "error: resume= goes on with one run, so it cannot be combined with -m.\n",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "`bundle` must be given: bundle=..."),
        (("bundle=here", "splitt=test"), "`splitt` is not a setting; did you mean `split`?"),
        (("bundle=here", "split=train"), "`split` must be 'test' or 'validation', but is 'train'."),
        (("bundle=here", "decoding=beam", "decoding.size=0"), "`decoding.size` must be greater than or equal to 1"),
        (("bundle=here",), "here is not a bundle: it has no config.json."),
    ],
)
def test_CFG_01_mistakes_of_an_evaluation(
    run_command: Callable[..., Any], arguments: tuple[str, ...], message: str
) -> None:
    result = run_command(evaluate.main, *arguments)
    assert result.status == 2
    assert message in result.err
    assert result.out == ""
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(("arguments", "seed"), [((), 1), (("seed=2",), 2), (("model.qk_norm=true",), 1)])
def test_CFG_01_what_is_right_starts(
    run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], seed: int
) -> None:
    started = []
    monkeypatch.setattr(train, "_train", lambda config, folder: started.append(config))
    assert run_command(train.main, *arguments).status == 0
    assert [config.seed for config in started] == [seed]
    assert started[0].model.qk_norm == ("model.qk_norm=true" in arguments)
