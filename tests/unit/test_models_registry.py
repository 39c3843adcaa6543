from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from privbench_core import stored
from privbench_core.errors import InternalError, ReleaseError
from privbench_core.groups.group_model import GroupModel
from privbench_core.marginals.sampler import Rows
from privbench_core.marginals.spn import Leaf, Product
from privbench_core.profiles.profile import Profile
from privbench_core.schema.columns import ColumnType
from privbench_core.stored import Storable, restored


@pytest.fixture(autouse=True)
def own_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_CLASSES", dict(stored._CLASSES))


def test_a_new_class_of_models_is_read_once_its_module_is_imported() -> None:
    with pytest.raises(ReleaseError, match=r"class 'Constant'; known: .*GroupModel, .*Leaf, .*Product, .*Sum"):
        restored({"class": "Constant", "code": 2})

    @dataclass(frozen=True)
    class Constant(Storable):
        """A model that no module of privbench knows."""

        code: int

        def draw(self, rows: Rows, rng: np.random.Generator) -> None:
            rows.add("a", self.code + 1, np.full(rows.n, self.code, dtype=np.uint8))

    model = restored({"class": "Constant", "code": 2})
    rows = Rows(3)
    model.draw(rows, np.random.default_rng(0))
    assert rows.codes["a"].tolist() == [2, 2, 2]


def test_bundled_models_are_read_by_their_own_classes_alone() -> None:
    leaf = Leaf(10.0, {"a": np.array([0.5, 0.5])}, {("c", "b"): np.ones((2, 2)), ("a", "b"): np.ones((2, 2))})
    assert isinstance(restored(leaf.to_dict()), Leaf)
    assert list(restored(leaf.to_dict()).pairs) == [("c", "b"), ("a", "b")]
    assert isinstance(restored(Product((leaf, leaf)).to_dict()), Product)
    assert isinstance(restored(GroupModel("size", (0,), ()).to_dict()), GroupModel)
    assert restored(ColumnType.DATE.to_dict()) is ColumnType.DATE
    with pytest.raises(ReleaseError, match="class 'Leaf'; wanted: 'Profile'"):
        Profile.from_dict(leaf.to_dict())


def test_a_name_stands_for_one_class() -> None:
    with pytest.raises(InternalError, match="two classes are stored as 'Leaf'"):
        type("Leaf", (Storable,), {})
