"""What the adviser makes of an audit; that objects follow it is tested on real servers."""

from typing import Any

from compass_abs.audit import audit
from compass_abs.audit.reading import observe_documents
from compass_abs.engines.kubernetes.adviser import recommended
from compass_abs.engines.kubernetes.recommendations import Recommendation, object_name
from tests.audit.kubectl import fragmented, listed, node, pod


def advice(*objects: dict[str, Any]) -> list[Recommendation]:
    return recommended(audit(observe_documents([("kubectl", listed(*objects))], "kubectl")))


def test_moves_that_let_a_job_start_are_recommended_with_it_alone() -> None:
    (found,) = advice(*fragmented(), pod("small", 2))
    assert found.admits == ("team/whole",)  # the small one needs no move
    assert (len(found.moves), found.gpu_seconds) == (1, 32.0)
    assert {found.moves[0].source, found.moves[0].target} < {"gpu-0", "gpu-1", "gpu-2"}


def test_moves_that_only_tidy_up_are_recommended_when_nobody_waits() -> None:
    (found,) = advice(*fragmented()[:-1])
    assert found.admits == ()
    assert found.why == "2 fewer nodes would be partly filled"


def test_nothing_is_recommended_where_nothing_may_move() -> None:
    assert advice(node("a"), node("b"), pod("x", 4, "a"), pod("y", 4, "b"), pod("whole", 8)) == []


def test_names_of_objects_are_fit_for_kubernetes_and_differ_by_pool_and_purpose() -> None:
    names = [
        object_name(pool, purpose) for pool in ("H100", "team=vision/H100", "ü") for purpose in ("start", "Tidy up!")
    ]
    assert len(set(names)) == 6
    assert all(name == name.lower() and name.replace("-", "").isalnum() and len(name) <= 63 for name in names)
