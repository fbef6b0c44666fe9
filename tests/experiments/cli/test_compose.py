import pytest

from experiments.cli.compose import check, load
from tokenizer.errors import UserError


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["bpe.vocab_sise=3"], r"unknown configuration key 'bpe.vocab_sise' \(did you mean 'bpe.vocab_size'\?\)"),
        (["vocab_size=300"], r"did you mean 'bpe.vocab_size' or 'superbpe.vocab_size'\?"),
        (["corpuss=files"], r"did you mean 'corpus'\?"),
        (["zzz=1"], "known: corpus, pattern"),
        (["bpe.zzz=1"], "known: bpe.vocab_size"),
        (["+extra=1"], "unknown configuration key 'extra'"),
        (["corpus=embeded"], r"corpus=embeded does not exist \(did you mean 'embedded'\?\)"),
        (["bpe.vocab_size=many"], "bpe.vocab_size=many is not a whole number$"),
        (["budget.train_bytes=ten"], "budget.train_bytes=ten is not a whole number, or a size such as 10MB"),
        (["device=cuda"], "did you mean 'lm.train.device'"),
        (["lm.device=cuda"], "did you mean 'lm.train.device'"),
        (["arms.bpe.bpe=llama3"], "takes keys, not a value: write arms.bpe.bpe.vocab_size=N"),
        (["superbpe.transition=80%"], "transition='80%' is neither a number nor 'auto'"),
        (["experiment=null"], "write GROUP=NAME, or ~GROUP"),
        (["++bpe.zzz=1"], "unknown configuration key 'bpe.zzz'"),
        (["corpus=files", "corpus.paths=a.txt"], r"write corpus.paths=\[a,b\]"),
        (["corpus=files"], "no text: give corpus.paths"),
        (["pattern=gpt3"], "did you mean 'gpt2'"),
        (['pattern="(a"'], r"\(a"),
        (["logger=wandb-ofline"], "did you mean 'wandb-offline'"),
        (["bpe.vocab_size=200"], "use at least 257"),
        (["runner.threads=0"], "runner.threads=0"),
        (["corpus.heldout_fraction=2"], "heldout_fraction=2.0 must be"),
        (["corpus.heldout_fraction=0"], "no documents are held out"),
        (["corpus=files", "corpus.paths=[a.txt]", "corpus.dataset=b"], "are both given"),
        (["corpus.max_bytes=0"], "corpus.max_bytes=0 must be at least 1"),
        (["bpe.min_count=0"], "bpe.min_count=0 must be at least 1"),
        (["eval.contamination=-1"], "a number of words such as 13, or null"),
        (["lm.train.device=gpu"], "use auto, cpu, cuda or cuda:NUMBER"),
        (["lm.tune_rates=[1,2]"], r"lm.tune_rates=\[1.0, 2.0\]: use at least 3 different factors above 0"),
        (["lm.tune_rates=[0,1,2]"], "different factors above 0"),
        (["superbpe.transition=9000"], "transition at 9000"),
        (["superbpe.transition=1.5"], "transition=1.5 is neither a fraction"),
        (["superbpe.unit=lin"], "document, line"),
        (["lm.model.hidden_size=100"], "head_dim"),
        (["superbpe.transition=0.7,0.8"], "--multirun"),
        (["a=["], "cannot read the override"),
        (["hydra/launcher=joblb"], "joblb"),
    ],
)
def test_a_mistake_is_one_line_with_its_remedy(overrides, message):
    with pytest.raises(UserError, match=message) as caught:
        check(overrides)
    assert "\n" not in str(caught.value)


def test_a_sweep_is_checked_value_by_value():
    assert check(["superbpe.transition=0.7,0.8", "logger=none"], sweep=True) == {"superbpe.transition": ["0.7", "0.8"]}
    with pytest.raises(UserError, match=r"1\.8"):
        check(["superbpe.transition=0.7,1.8"], sweep=True)


def test_a_transition_is_a_number_or_a_fraction():
    assert load(["superbpe.transition=0.5"]).superbpe.transition == 0.5
    assert load(["superbpe.transition=5000"]).superbpe.transition == 5000


def test_a_custom_configuration_folder(tmp_path):
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "mine.yaml").write_text("# @package _global_\nbpe:\n  vocab_size: 5000\n")
    assert load(["experiment=mine"], config_dir=str(tmp_path)).bpe.vocab_size == 5000
    (folder / "typo.yaml").write_text("# @package _global_\nbpe:\n  vocab_sise: 5000\n")
    with pytest.raises(UserError, match=r"did you mean 'bpe\.vocab_size'"):
        load(["experiment=typo"], config_dir=str(tmp_path))
