"""Payloads and deltas: any tree of tensors comes back, any damage is seen."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from compass_abs.training.delta import Base, difference, reassemble  # noqa: E402
from compass_abs.training.payload import (  # noqa: E402
    CorruptCheckpointError,
    flatten,
    read_payload,
    unflatten,
    write_payload,
)
from compass_abs.training.store import CheckpointStore  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]


def tensor(dtype: Any, shape: list[int], seed: int) -> Any:
    values = torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(seed))
    return values.to(dtype)


def same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(torch.equal(a, b))


tensors = st.builds(tensor, st.sampled_from(DTYPES), st.lists(st.integers(0, 5), max_size=3), st.integers(0, 2**20))
trees = st.recursive(
    tensors | st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=3), children, max_size=4),
    max_leaves=12,
)


def assert_same_tree(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert same(a, b)
    elif isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same_tree(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same_tree(a[key], b[key])
    else:
        assert a == b


@settings(max_examples=100)
@given(trees)
def test_payload_of_any_tree_comes_back(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    path = tmp_path_factory.mktemp("payload") / "p"
    skeleton, flat = flatten(tree)
    digest = write_payload(path, skeleton, flat)
    assert_same_tree(unflatten(*read_payload(path, digest)), tree)


def test_payload_of_special_tensors_comes_back(tmp_path: Path) -> None:
    base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    tree = {
        "strided": base.transpose(0, 2),
        "tied": [base, base],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "scalar": torch.tensor(3),
        "channels": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "sparse": torch.eye(3).to_sparse(),
        "large": torch.arange(3 << 20),
    }
    skeleton, flat = flatten(tree)
    back = unflatten(*read_payload(tmp_path / "p", write_payload(tmp_path / "p", skeleton, flat)))
    for name in ("strided", "parameter", "scalar", "channels", "large"):
        assert torch.equal(back[name], tree[name]), name
    assert back["tied"][0] is back["tied"][1]
    assert torch.equal(back["sparse"].to_dense(), torch.eye(3))
    back["large"] += 1  # training on it must not reach the file
    again = unflatten(*read_payload(tmp_path / "p", write_payload(tmp_path / "q", skeleton, flat)))
    assert torch.equal(again["large"], tree["large"])


def test_flipped_byte_in_a_tensor_is_seen(tmp_path: Path) -> None:
    digest = write_payload(tmp_path / "p", *flatten({"a": torch.ones(100), "b": torch.zeros(5 << 20)}))
    whole = (tmp_path / "p").read_bytes()
    for position in (whole.index(b"\x80\x3f"), len(whole) - 1, len(whole) // 2):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        (tmp_path / "p").write_bytes(damaged)
        with pytest.raises(CorruptCheckpointError, match="digest"):
            read_payload(tmp_path / "p", digest)


# ---- deltas


@settings(max_examples=60)
@given(
    rows=st.integers(1, 1200),
    touched=st.lists(st.integers(0, 1199), max_size=60),
    frozen=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
)
def test_delta_applied_to_its_base_is_the_later_state(rows: int, touched: list[int], frozen: bool, dtype: Any) -> None:
    table, dense, backbone = tensor(dtype, [rows, 3], 1), tensor(dtype, [7], 2), tensor(dtype, [300, 40], 3)
    later = [table.clone(), dense + 1, backbone.clone() if frozen else backbone + 1]
    for row in touched:
        later[0][row % rows, 1] = -1.0
    skeleton, flat = flatten({"state": later})
    change = difference(Base("p", "d", [table.clone(), dense.clone(), backbone.clone()]), skeleton, flat)
    if change is None:
        assert not frozen or len(touched) > 0
        return
    whole = reassemble(change, [table, dense, backbone])
    assert all(same(a, b) for a, b in zip(unflatten(*whole)["state"], later, strict=True))


def test_delta_of_a_dense_change_is_not_worth_it() -> None:
    old = [torch.randn(1000, 8), torch.randn(50)]
    assert difference(Base("p", "d", old), *flatten([t + 1 for t in old])) is None


def test_delta_of_other_shapes_or_counts_is_refused() -> None:
    base = Base("p", "d", [torch.ones(3)])
    assert difference(base, *flatten([torch.ones(4)])) is None
    assert difference(base, *flatten([torch.ones(3), torch.ones(3) * 2])) is None


def test_delta_sees_signed_zeros_and_keeps_nans() -> None:
    old, new = torch.zeros(2000, 4), torch.zeros(2000, 4)
    new[5] = -0.0
    new[6] = float("nan")
    change = difference(Base("p", "d", [old.clone()]), *flatten([new]))
    assert change is not None
    (back,) = unflatten(*reassemble(change, [old]))
    assert torch.equal(back.view(torch.int32), new.view(torch.int32))


def test_store_keeps_the_base_of_a_delta_and_loads_both(tmp_path: Path) -> None:
    checkpoints = CheckpointStore(tmp_path, 1, keep=1)
    checkpoints.claim()
    table = torch.randn(5000, 8)
    first = checkpoints.save({"t": table.clone()}, 1)
    checkpoints.base = Base(first.payload, first.sha256, [table.clone()])
    table[17] += 1
    second = checkpoints.save({"t": table, "step": 2}, 2)
    assert second.base == first.payload
    assert second.bytes < first.bytes / 10
    assert [m.step for m in checkpoints.candidates()] == [2]
    restored = CheckpointStore(tmp_path, 2).newest()
    assert restored is not None
    assert torch.equal(restored.tree["t"], table)
    (tmp_path / first.payload).write_bytes(b"damaged")
    with pytest.raises(CorruptCheckpointError):
        CheckpointStore(tmp_path, 2).newest()
