"""The list of runs of an experiment."""

from experiments.runs import Run, chains, list_runs


def test_all_runs_are_listed_once_arms_side_by_side_and_budgets_together():
    runs = list_runs(["superbpe", "bpe"], [8, 4], [3, 1], [200, 100])
    assert len(set(runs)) == len(runs) == 16
    assert runs[:4] == [
        Run("superbpe", 4, 3, 100),
        Run("superbpe", 4, 3, 200),
        Run("bpe", 4, 3, 100),
        Run("bpe", 4, 3, 200),
    ]
    groups = chains(runs)
    assert [run for group in groups for run in group] == runs
    assert [len(group) for group in groups] == [2] * 8
    assert sorted(runs)[0] == Run("bpe", 4, 1, 100)


def test_the_name_of_a_run_is_for_people_and_unique():
    runs = list_runs(["bpe", "superbpe"], [1, 2], [0, 1], [1_000, 2_000])
    assert len({str(run) for run in runs}) == len(runs)
    assert str(Run("bpe", 1, 0, 12_000_000)) == "bpe (1 layer, seed 0, 12M)"
