import pytest

from experiments.cli import main
from experiments.compose import check, load
from tests.properties import quick_first
from tokenizer.errors import UserError


@pytest.mark.parametrize(
    ("overrides", "message"),
    quick_first(
        [
            (["bpe.vocab_sise=3"], r"unknown configuration key 'bpe.vocab_sise' \(did you mean 'bpe.vocab_size'\?\)"),
            (["vocab_size=300"], r"did you mean 'bpe.vocab_size' or 'superbpe.vocab_size'\?"),
            (["superbpe.preset=digits"], r"superbpe=NAME chooses one of boundless, digits"),
            (["corpuss=files"], r"did you mean 'corpus'\?"),
            (["zzz=1"], "known: arms, reference"),
            (["bpe.zzz=1"], "known: bpe.vocab_size"),
            (["+extra=1"], "unknown configuration key 'extra'"),
            (["corpus=embeded"], r"corpus=embeded does not exist \(did you mean 'embedded'\?\)"),
            (["bpe.vocab_size=many"], "bpe.vocab_size=many is not a whole number, or a size such as 10MB or 32k"),
            (["arms.bpe.bpe=llama3"], "takes keys, not a value: write arms.bpe.bpe.vocab_size=N"),
            (["superbpe.transition=80%"], "transition='80%' is neither a number nor 'auto'"),
            (["experiment=null"], "write GROUP=NAME, or ~GROUP"),
            (["corpus=files", "corpus.paths=a.txt"], r"write corpus.paths=\[a,b\]"),
            (["corpus=files"], "no text: give corpus.paths"),
            (["pattern=gpt3"], "did you mean 'gpt2'"),
            (['pattern="(a"'], r"\(a"),
            (["logger=wandb-ofline"], "did you mean 'wandb-offline'"),
            (["bpe.vocab_size=200"], "use at least 257"),
            (["runner.threads=0"], "runner.threads=0"),
            (["corpus.heldout_fraction=0"], "no documents are held out"),
            (["corpus=files", "corpus.paths=[a.txt]", "corpus.dataset=b"], "are both given"),
            (["corpus.max_bytes=0"], "corpus.max_bytes=0 must be at least 1"),
            (["eval.contamination=-1"], "must be at least 0: a number of words such as 13, or null"),
            (["lm.train.device=gpu"], "use auto, cpu, cuda or cuda:NUMBER"),
            (["lm.tune_rates=[0,1,2]"], r"lm.tune_rates=\[0.0, 1.0, 2.0\]: use at least 3 different factors above 0"),
            (["superbpe.transition=9000"], "transition at 9000"),
            (["superbpe.unit=lin"], "document, line"),
            (["lm.model.hidden_size=100"], "head_dim"),
            (["superbpe.transition=0.7,0.8"], "--multirun"),
            (["a=["], "cannot read the override"),
            (["hydra/launcher=joblb"], "joblb"),
            (
                ["experiment=uw_2025", "corpus.paths=[a]", "bpe.vocab_size=600"],
                "change superbpe.transition or bpe.vocab",
            ),
            (["bpe.special_tokens=[a]"], "special token 'a' is also how"),
            (["lm.train.compile=maybe"], "compile=maybe is not one of"),
            (["budget.mode=equal_byte"], "did you mean 'equal_bytes'"),
            (["budget.train_flops=inf"], "budget.train_flops=inf must be"),
            (["budget.ladder=[0]"], "budget.ladder has 0: use shares of budget.train_bytes below 1, or bytes up"),
            (
                ["budget.train_flops=1e10", "lm.train.context_tokens=256", "budget.ladder=[2e10]"],
                r"budget.ladder has 2e\+10: use shares of budget.train_flops below 1, or FLOPs up to 10,000,000,000",
            ),
            (["lm.train.warmup_steps=1000", "budget.train_bytes=81920"], "overlap in a run of 20 steps"),
            (
                ["eval.weights={code: -1}"],
                r"weights=\{'code': -1.0\} must be positive numbers, for instance \{english: 0.6",
            ),
            (["eval.weights={code: x}"], "eval.weights.code=x is not a number"),
            (
                ["eval.weights=0.5"],
                r"names of kinds and numbers, for instance eval.weights=\{english: 0.6, code: 0.4\}",
            ),
            (["eval.weights=null"], "eval.weights takes names of kinds and numbers"),
            (["corpus.paths=[a.jsonl]"], "add corpus=files"),
            (
                ["corpus=files", "corpus.paths=[a]", "corpus.sources={web: b}"],
                "paths and corpus.sources are both given",
            ),
            (["superbpe=boundless", "superbpe.transition=0.5"], "these rules find the transition themselves"),
            (["arms=[]"], r"no arms to compare; choose some, such as arms=\[bpe,superbpe\]"),
            (["arms=[bpe,supperbpe]"], r"arms.supperbpe has no recipe \(did you mean 'superbpe'\?\)"),
            (["arms=[bpe,'a b']"], "the name of an arm consists of letters"),
            (["arms=[bpe,x]", "arms.x.recipe=wordpiece"], "'wordpiece'; it is one of: bpe, bpe_same, superbpe"),
            (["arms=[bpe,x]", "arms.x.recipe=file"], r"needs arms.x.file=…"),
            (
                ["arms=[bpe,x]", "arms.x.recipe=bpe", "arms.x.file=a"],
                "arms.x.file has no effect .* recipe=bpe; remove it",
            ),
            (["arms.bpe.lable=x"], r"unknown configuration key 'arms.bpe.lable' \(did you mean 'arms.bpe.label'\?\)"),
            (["arms.bpe.bpe.vocab_sise=300"], r"'arms.bpe.bpe.vocab_sise' \(did you mean 'vocab_size'\?\)"),
            (["arms.bpe.bpe.vocab_size=many"], "arms.bpe.bpe.vocab_size: Value 'many'"),
            (["arms=[bpe,x]", "arms.x.recipe=superbpe", "arms.x.preset=run"], r"did you mean 'runs'\?"),
            (["arms=[bpe,x]", "arms.x.recipe=bpe", "arms.x.label=BPE"], "two arms have the label 'BPE'"),
            (["reference=bp"], r"reference=bp is not an arm \(did you mean 'bpe'\?\)"),
            (["arms.other.file=x"], r"the arm 'other' is not chosen; add it to the list: arms=\[bpe,superbpe,other\]"),
            (["arms.bytes.bpe.vocab_size=300"], "the arm 'bytes' is not chosen"),
            (
                ["arms=[bpe,x]", "arms.x.file=a", "arms.x.bpe.vocab_size=512"],
                "bpe has no effect on an arm with .*=file",
            ),
            (["arms.superbpe.bpe.vocab_size=100"], "arm superbpe: bpe.vocab_size=100 is below"),
        ],
        20,
    ),
)
def test_a_mistake_is_one_line_with_its_remedy(overrides, message):
    with pytest.raises(UserError, match=message) as caught:
        check(overrides)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_sweep_is_checked_value_by_value():
    for key, values in [
        ("superbpe.transition", ["0.7", "0.8"]),
        ("superbpe", ["uw-2025", "runs"]),
        ("arms", ["[bpe,superbpe]", "[bpe,bytes]"]),
        ("arms.superbpe.superbpe.transition", ["0.7", "0.8"]),
    ]:
        assert check([f"{key}={','.join(values)}", "logger=none"], sweep=True) == {key: values}
    assert [load([f"superbpe.transition={value}"]).superbpe.transition for value in (0.5, 5000)] == [0.5, 5000]
    with pytest.raises(UserError, match=r"1\.8"):
        check(["superbpe.transition=0.7,1.8"], sweep=True)


def test_a_custom_configuration_folder(tmp_path):
    (folder := tmp_path / "experiment").mkdir()
    (folder / "mine.yaml").write_text("# @package _global_\nbpe:\n  vocab_size: 5000\n")
    assert load(["experiment=mine"], config_dir=str(tmp_path)).bpe.vocab_size == 5000
    (folder / "typo.yaml").write_text("# @package _global_\nbpe:\n  vocab_sise: 5000\n")
    with pytest.raises(UserError, match=r"did you mean 'bpe\.vocab_size'"):
        load(["experiment=typo"], config_dir=str(tmp_path))


def test_settings_are_printed_instead_of_running(capsys, mistake):
    assert main.run(["pipeline", "--package", "lm.model", "lm.model.n_layers=3"]) == 0
    assert "n_layers: 3" in capsys.readouterr().out
    assert "did you mean 'lm'?" in mistake("pipeline", "--package", "lmm")
    assert "'lm.n_seeds' is not a group" in mistake("pipeline", "--package", "lm.n_seeds")
    assert "bpe.vocab_size has several" in mistake("pipeline", "--cfg", "job", "--multirun", "bpe.vocab_size=300,400")
