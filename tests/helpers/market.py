"""A database with a second private parent: customers, their products, and sales that refer to both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.planted import category, integer, owner_key, rows_of, texts


def market(
    sales: int = 9000,
    products: int = 1600,
    power: float = 1.0,
    optional: bool = False,
    pairs: bool = False,
    most: int = 9000,
) -> tuple[Schema, dict[str, pa.Table]]:
    """Customers buy products of other customers, mostly of the colour of the sale; few products are bought often."""
    rng = np.random.default_rng(0)
    customers = max(sales // 6, products // 4)
    customer = Table("customer", (integer("id"), category("kind", 2)), ("id",))
    columns = (integer("id"), integer("seller", nullable=True), category("colour", 3))
    seller = replace(owner_key("product", "seller", "customer", 4), optional=True)
    product = Table("product", columns, ("id",), (seller,))
    key = ForeignKey("sale", ("product_id",), "product", ("id",), max_children=most, optional=optional)
    name = ("customer_id", "product_id") if pairs else ("id",)
    own = (integer("customer_id"), integer("product_id", nullable=optional), category("way", 3))
    sale = Table(
        "sale", own if pairs else (integer("id"), *own), name, (owner_key("sale", "customer_id", "customer", 40), key)
    )
    colour = rng.integers(0, 3, products)
    weight = np.arange(1, products + 1) ** -power
    bought = rng.choice(products, sales, p=weight / weight.sum())
    home = rng.integers(0, customers, sales)
    if pairs:
        home, bought = np.unique(np.column_stack([home, bought]), axis=0).T
    way = np.where(rng.random(len(home)) < 0.8, colour[bought], rng.integers(0, 3, len(home)))
    none = optional & (rng.random(len(home)) < 0.3)
    sellers = np.repeat(rng.permutation(customers), 4)[:products]
    tables = {
        "customer": rows_of(customer, id=np.arange(customers), kind=texts(rng.integers(0, 2, customers))),
        "product": rows_of(product, id=np.arange(products), seller=sellers, colour=texts(colour)),
        "sale": rows_of(
            sale,
            **({} if pairs else {"id": np.arange(len(home))}),
            customer_id=home,
            product_id=pa.array(bought, mask=none),
            way=texts(way),
        ),
    }
    return Schema("market", (customer, product, sale), "customer"), tables
