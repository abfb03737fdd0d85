"""Studies as YAML: what is read, and what is said when they can't be."""

from pathlib import Path

import pytest
import yaml

from compass_abs.experiments import StudyError, cells_of, load_study, read_study, sampled, shipped_studies
from compass_abs.experiments.grid import _check_names
from compass_abs.model import CompassError
from tests.experiments.small import small_study


def write(path: Path, **changes: object) -> Path:
    study = yaml.safe_load(yaml.safe_dump(small_study().model_dump(mode="json")))
    path.write_text(yaml.safe_dump(study | changes), encoding="utf-8")
    return path


def table(**changes: object) -> dict[str, object]:
    return {"tables": [{"name": "a", "by": ["eta"], "values": ["ajct"]} | changes]}


def figure(**changes: object) -> dict[str, object]:
    return {"figures": [{"name": "f", "kind": "lines", "x": "eta", "y": ["afr"]} | changes]}


@pytest.mark.parametrize("name", shipped_studies())
def test_shipped_study_read_names_only_what_exists(name: str) -> None:
    study = load_study(name)
    assert study.name == name
    _check_names(study)
    for spec in study.rankings:
        assert {spec.subject, *spec.field} <= set(study.schedulers)
    for figure in study.figures:
        for column, value in figure.where.items():
            assert value in getattr(study, column)


def test_shipped_studies_cover_every_section_of_the_evaluation() -> None:
    assert [load_study(name).paper[:11] for name in shipped_studies()[:6]] == [f"section 6.{n}" for n in range(1, 7)]
    assert set(shipped_studies()[6:]) == {"frontier", "queues", "scale", "pinned"}


def test_study_written_and_read_back_is_the_same(tmp_path: Path) -> None:
    assert read_study(write(tmp_path / "mine.yaml")) == small_study()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"eta": [1.2]}, r"eta\.0 is 1\.2"),
        ({"schedulers": []}, r"schedulers is \[\]"),
        ({"colour": "red"}, r"colour is 'red'"),
        ({"name": "Two Words"}, r"name is 'Two Words'"),
        ({"workloads": [{"trace": "venus", "synth": "gfs"}]}, r"workloads\.0 .*either `trace`"),
        ({"workloads": [{"trace": "venus", "length": 3}]}, r"workloads\.0 .*belong to `synth`"),
        ({"tables": [{"name": "a", "by": ["eta"], "values": []}] * 2}, r"tables .*two are called 'a'"),
        (
            table(values=["ajct", "afrr"]),
            r"tables\.0\.values\.1 is 'afrr'.*'afr'",
        ),
        (table(by=["eat"]), r"tables\.0\.by\.0 is 'eat'"),
        (
            table(values=["window_n_sif"]),
            r"values\.0 .*give the study a `window`",
        ),
        (table(name="../a"), r"tables\.0\.name is '\.\./a'"),
        ({"schedulers": ["gfs", "fgd", "compass-abs"]}, r"'ajct_ratio', which needs 'sif-opt' among the schedulers"),
        (figure(x="speed"), r"figures\.0\.x is 'speed'"),
        (figure(y=[]), r"figures\.0\.y is \[\]"),
        (
            figure(where={"eta": 0.5}),
            r"figures\.0\.where\.eta is 0\.5",
        ),
        (
            figure(where={"et": 0.5}),
            r"figures\.0\.where is 'et'",
        ),
        (figure(panels="et"), r"figures\.0\.panels is 'et'"),
        ({"rankings": [{"name": "r", "subject": "fft"}]}, r"rankings\.0\.subject is 'fft'"),
        ({"rankings": [{"name": "r", "subject": "gfs", "field": ["fft"]}]}, r"rankings\.0\.field\.0 is 'fft'"),
        ({"rankings": [{"name": "r", "subject": "gfs", "metrics": ["speed"]}]}, r"rankings\.0\.metrics\.0 is 'speed'"),
        ({"eta": []}, r"eta is \[\]"),
        ({"queues": []}, r"queues is \[\]"),
        ({"costs": [float("inf")]}, r"costs\.0 is inf"),
        ({"costs": [1, 8, 1]}, r"costs is \[1, 8, 1\]: 1\.0 stands there twice"),
        ({"window": {"start": 22, "end": 21}}, r"window is .*`end` must come after `start`"),
        ({"workloads": [{"synth": "venus", "days": []}]}, r"workloads\.0\.days is \[\]: expected all, a list"),
        ({"workloads": [{"synth": "venus", "days": "some"}]}, r"workloads\.0\.days is 'some': expected all, a list"),
        ({"workloads": [{"trace": "venus", "tail": "long"}]}, r"workloads\.0\.tail is 'long'"),
        ({"workloads": [{"synth": "venus", "tail": "refilled"}]}, r"workloads\.0 .*`tail` belongs to `trace`"),
        ({"workloads": [{"synth": "venus", "seed": 1}, {"synth": "venus", "seed": 2}]}, r"workloads .*its `label`"),
    ],
)
def test_study_with_a_mistake_read_names_file_field_and_value(
    tmp_path: Path, changes: dict[str, object], complaint: str
) -> None:
    path = write(tmp_path / "mine.yaml", **changes)
    with pytest.raises(StudyError, match=complaint) as caught:
        read_study(path)
    assert str(path) in str(caught.value)


def test_field_given_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: a\ntitle: b\nworkloads:\n  - {synth: demo, seed: 1, seed: 2}\n", encoding="utf-8")
    with pytest.raises(StudyError, match=r"mine\.yaml line 4: .*'seed' is given twice"):
        read_study(path)


def test_file_that_is_no_yaml_read_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: a\nworkloads: [\n", encoding="utf-8")
    with pytest.raises(StudyError, match=r"mine\.yaml line 3"):
        read_study(path)


@pytest.mark.parametrize("content", ["", "just text", "- a\n- b\n"])
def test_file_without_fields_read_says_what_was_expected(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(StudyError, match="expected fields such as"):
        read_study(path)


def test_unknown_study_loaded_names_those_that_exist() -> None:
    with pytest.raises(StudyError, match=r"no study 'overal'; known: overall, intensity"):
        load_study("overal")


@pytest.mark.parametrize("changes", [{"schedulers": ["gfz"]}, {"schedulers": ["fft:perod=3"]}, {"queues": ["lifo"]}])
def test_unknown_name_in_a_grid_is_refused_before_anything_runs(changes: dict[str, object]) -> None:
    with pytest.raises(CompassError, match=r"gfz|perod|lifo"):
        cells_of(small_study(**({"schedulers": ["gfs"]} | changes)))


def test_day_without_jobs_is_refused_with_the_last_day() -> None:
    with pytest.raises(StudyError, match="day 9 has no jobs; days go to 3"):
        cells_of(small_study(workloads=[{"synth": "venus", "length": 3, "days": [9]}]))


def test_grid_expanded_has_every_combination_once() -> None:
    study = small_study(costs=[1, 8], queues=["fifo", "sjf"], pinned=[0.0, 0.5])
    cells = cells_of(study)
    assert len(cells) == 2 * 2 * 2 * 2 * 2 * len(study.schedulers)
    assert len({repr(cell.columns()) for cell in cells}) == len(cells)


def test_sample_of_days_takes_every_nth_from_the_start() -> None:
    study = small_study(workloads=[{"synth": "venus", "length": 9, "days": {"every": 3, "start": 2}}], eta=[0.9])
    assert sorted({cell.day for cell in cells_of(study)}) == [2, 5, 8]


def test_study_sampled_has_every_nth_of_its_days() -> None:
    study = small_study(workloads=[{"synth": "demo", "length": 5, "seed": 5, "days": [1, 2, 4, 5]}])
    quick = sampled(study, 3)
    assert [cell.day for cell in cells_of(quick)] == [1] * 10 + [5] * 10
    assert set(cells_of(quick)) < set(cells_of(study))
    assert sampled(quick, 2).sample == 6


def test_cluster_of_its_own_is_used_whatever_eta_says() -> None:
    study = small_study(workloads=[{"synth": "phys-mix", "nodes": 4}])
    assert {(cell.nodes, cell.eta) for cell in cells_of(study)} == {(4, None)}
