from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from privbench_core.errors import InternalError
from privbench_core.models import registry
from privbench_core.models.group_model import GroupModel
from privbench_core.models.registry import model_from_dict, register_model
from privbench_core.models.rows import Rows
from privbench_core.models.spn import Leaf, Product, node_to_dict


@dataclass(frozen=True)
class Constant:
    """A model that no module of privbench knows."""

    code: int

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        rows.add("a", self.code + 1, np.full(rows.n, self.code, dtype=np.uint8))

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Constant:
        return cls(stored["code"])


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_READERS", dict(registry._READERS))


def test_a_new_class_of_models_is_read_once_its_module_has_registered_it() -> None:
    with pytest.raises(InternalError, match=r"registered for 'constant', only .*leaf, members, product, sum; import"):
        model_from_dict({"kind": "constant", "code": 2})
    register_model(Constant.from_dict, "constant")
    model = model_from_dict({"kind": "constant", "code": 2})
    rows = Rows(3)
    model.draw(rows, np.random.default_rng(0))
    assert rows.codes["a"].tolist() == [2, 2, 2]


def test_the_kinds_of_the_bundled_models_are_read_by_their_own_classes() -> None:
    leaf = Leaf(10.0, {"a": np.array([0.5, 0.5])})
    assert isinstance(model_from_dict(node_to_dict(leaf)), Leaf)
    assert isinstance(model_from_dict(node_to_dict(Product((leaf, leaf)))), Product)
    assert isinstance(model_from_dict(GroupModel("size", (0,), ()).to_dict()), GroupModel)


def test_a_kind_has_one_reader() -> None:
    register_model(Constant.from_dict, "constant")
    register_model(Constant.from_dict, "constant")  # a module that is imported again
    with pytest.raises(InternalError, match="two classes of models are stored as 'leaf'"):
        register_model(Constant.from_dict, "leaf")
