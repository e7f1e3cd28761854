"""The task scheduler: time goes where it pays, and stops where it does not."""

from __future__ import annotations

from felix_mlir.search import TaskProgress, next_task


def test_the_costliest_task_goes_first():
    assert next_task([TaskProgress(1.0), TaskProgress(5.0), TaskProgress(2.0)]) == 1


def test_time_goes_where_it_gains_most_for_its_length():
    assert next_task([TaskProgress(2.0, candidate_s=4.0), TaskProgress(1.0, candidate_s=1.0)]) == 1


def test_a_task_that_gains_nothing_gives_way_and_in_the_end_stops():
    stuck, other = TaskProgress(5.0), TaskProgress(1.0)
    chosen = []
    for _ in range(40):
        index = next_task([stuck, other])
        if index is None:
            break
        chosen.append(index)
        (stuck, other)[index].ratios.append(1.0)
    assert 1 in chosen[:10]
    assert index is None
    assert stuck.finished
    assert other.finished


def test_a_task_that_still_gains_is_not_finished():
    assert not TaskProgress(1.0, [1.0, 0.9, 0.8, 0.7, 0.6, 0.55]).finished
    assert TaskProgress(1.0, [1.0, *[0.6] * 7]).finished


def test_a_recent_gain_counts_for_more_than_none():
    improving = TaskProgress(1.0, [1.0, 0.9, 0.8, 0.7])
    flat = TaskProgress(1.0, [0.7, 0.7, 0.7, 0.7])
    assert next_task([flat, improving]) == 1


def test_no_tasks_no_choice():
    assert next_task([]) is None
