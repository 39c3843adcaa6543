"""Say which keys of a source a spec can declare, and propose some for one that declares none, from names and types.

A proposal that is wrong is found before anything is paid for: a run checks that primary keys are distinct and that
references have a match.

In a primary key of several columns those that are no reference are attributes (the drug in ``encounter, drug``), unless
they count rows (``line``), number them (``id`` next to the time that a table is partitioned by), or identify persons.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundKey, FoundTable
from privbench_core.draft.names import (
    ends_with,
    guess_identifying,
    numbers_own_person,
    orders_rows,
    own_name,
    singular,
    words_of,
)
from privbench_core.draft.units import KeyPlace
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.tables import is_called_like_key
from privbench_core.schema.types.registry import parse_sql_type

_ID = re.compile(r".*(id|key|_no|_nr|_num|number|uid)$", re.IGNORECASE)
_ROW_NUMBERS = frozenset({"row_id", "rowid"})
_ID_ALONE = frozenset({"id", "key", "uid", *_ROW_NUMBERS})
_EVENTS = (
    r"(record|entry|event|incident|opportunity|ride|booking|reservation|observation|complaint|inspection|appointment|"
    r"payment)"
)
_SAME_LETTERS = 3  # first letters that a table and its column have in common; chosen by hand


def propose_keys(catalogue: Catalogue) -> Catalogue:
    """Return the catalogue with primary and foreign keys where no table declares a foreign key.

    A column called ``id`` or after its table is the primary key, or the first one if columns elsewhere are called after
    the table. So are the identifying columns that a table shares with others, if some other table has all of them:
    ``houseid`` of households and ``houseid, personid`` of persons, where trips have both. Of several columns, one that
    is no table's key by itself has to be called after the table: a year and a league identify no award.
    """
    if any(table.foreign_keys for table in catalogue.tables):
        return catalogue
    stems = _stems([table.name for table in catalogue.tables])
    names = {stem: name for name, stem in stems.items()}
    tables = []
    for table in _with_proposals([replace(table, name=stems[table.name]) for table in catalogue.tables]):
        keys = tuple(replace(key, parent=names[key.parent]) for key in table.foreign_keys)
        tables.append(replace(table, name=names[table.name], foreign_keys=keys))
    return replace(catalogue, tables=tuple(tables), proposed=any(table.foreign_keys for table in tables))


def with_required(catalogue: Catalogue, owners: Collection[KeyPlace]) -> Catalogue:
    """Return a catalogue of proposed keys with those of ``owners`` required that are called like what they refer to.

    Files do not say what may be NULL, and a row without an owner would be a unit of its own.
    """
    if not catalogue.proposed:
        return catalogue
    tables = []
    for table in catalogue.tables:
        keys = [key for key in table.foreign_keys if (table.name, key.columns, key.parent) in owners]
        likely = (each for key in keys for each in _reference(table, catalogue.table(key.parent)))
        tables.append(_requiring(table, [key for key, is_plain in likely if is_plain and key in keys]))
    return replace(catalogue, tables=tuple(tables))


def usable_keys(table: FoundTable, catalogue: Catalogue) -> tuple[list[FoundKey], list[FoundKey], list[str]]:
    """Return the keys that a spec can declare, those that they imply, and notes about the others."""
    kept = set(table.usable)
    usable = {other.name: set(other.usable) for other in catalogue.readable}
    keys: list[FoundKey] = []
    notes: list[str] = []
    for key in table.foreign_keys:
        where = f"the foreign key on ({', '.join(key.columns)})"
        if key.parent not in usable:
            there = any(other.name == key.parent for other in catalogue.tables)
            notes.append(f"{where}, because {key.parent} {'may not be read' if there else 'is not in this source'}")
        elif not (kept.issuperset(key.columns) and usable[key.parent].issuperset(key.parent_columns)):
            notes.append(f"{where}, because one of its columns is left out")
        else:
            keys.append(key)
    keys, implied = catalogue.without_implied(keys)
    single: dict[frozenset[str], FoundKey] = {}
    for key in keys:
        first = single.setdefault(frozenset(key.columns), key)
        if first is not key:
            where = f"the foreign key on ({', '.join(key.columns)}) to {key.parent}"
            notes.append(f"{where}, because these columns already refer to {first.parent}")
    return list(single.values()), implied, notes


def _requiring(table: FoundTable, keys: Iterable[FoundKey]) -> FoundTable:
    """Return a table with these keys required, unless some column that is in no key says what may be NULL."""
    of_keys = {name for key in table.foreign_keys for name in key.columns}
    if any(not column.nullable for column in table.columns if column.name not in of_keys):
        return table
    required = {name for key in keys for name in key.columns}
    columns = tuple(replace(c, nullable=c.nullable and c.name not in required) for c in table.columns)
    return replace(table, columns=columns)


def undeclared_references(table: FoundTable, parents: Iterable[FoundTable]) -> Iterator[tuple[str, str]]:
    """Yield columns of a table, and the tables after whose primary key they are called, although no key says so."""
    known = {name for key in table.foreign_keys for name in key.columns}
    for parent in parents:
        keys = [key for key, is_plain in _reference(table, parent) if is_plain and known.isdisjoint(key.columns)]
        yield from ((key.columns[0], parent.name) for key in keys if len(key.columns) == 1)


def _stems(names: Sequence[str]) -> dict[str, str]:
    """Return the names of tables without first words that all share, else one, and a last one, that most of them do."""
    words = {name: words_of(own_name(name)).split() for name in names}
    most = max(2, len(names) / 2)
    places = zip(*words.values(), strict=False) if len(names) > most else ()
    shared = sum(1 for _ in takewhile(lambda place: len({*place}) == 1, places))
    ends = [Counter(parts[place] for parts in words.values() if len(parts) > 1) for place in (0, -1)]
    first, last = ({word for word, number in end.items() if number > most} for end in ends)
    stems = {}
    for name, parts in words.items():
        start = min(max(shared, int(not first.isdisjoint(parts[:1]))), max(len(parts) - 1, 0))
        stop = len(parts) - int(len(parts) - start > 1 and parts[-1] in last)
        stems[name] = name if stop - start == len(parts) else "_".join(parts[start:stop])
    return stems if len({stem.casefold() for stem in stems.values()}) == len(names) else {name: name for name in names}


def _with_proposals(tables: Sequence[FoundTable]) -> Iterator[FoundTable]:
    columns = {table.name: frozenset(c.name.casefold() for c in table.columns) for table in tables}
    counted = Counter(name for names in columns.values() for name in names)
    common = {name for name, number in counted.items() if number > 1 and name not in _ID_ALONE}
    shared = {t.name: tuple(n for n in t.usable if _ID.match(n) and n.casefold() in common) for t in tables}
    elsewhere = {name: frozenset[str]().union(*(columns[t] for t in columns if t != name)) for name in columns}
    called = {name for table in tables for name in _called(table)}
    own = {table.name: table.primary_key or _own_key(table, elsewhere[table.name], called) for table in tables}
    keyed = [replace(table, primary_key=_primary(table, shared, own, elsewhere[table.name])) for table in tables]
    for table in keyed:
        references = list(_references(table, keyed))
        likely = [references[0][0]] if references and references[0][1] else []
        yield replace(_requiring(table, likely), foreign_keys=tuple(key for key, _ in references))


def _own_key(table: FoundTable, elsewhere: frozenset[str], called: set[str]) -> tuple[str, ...]:
    """Return the column called ``id`` or after the table.

    Else the first one, if columns elsewhere are called after the table, or it is after the beginning of its name, or
    numbers events, which happen once, or persons whose names follow: ``playerID`` of ``Master``.
    """
    usual = {"id", *_names_of(table, "id"), *_names_of(table, "key")}
    kept = [name for name in table.usable if name.casefold() not in _ROW_NUMBERS]
    found = [name for name in kept if name.casefold() in usual]
    if not found and kept:
        is_referred_to = _ID.match(kept[0]) and not elsewhere.isdisjoint(usual - _ID_ALONE)
        is_own = kept[0].casefold() not in elsewhere and (
            _begins_like(kept[0], table, called) or ends_with(kept[0], rf"{_EVENTS} ?id")
        )
        found = [kept[0]] if is_referred_to or is_own or numbers_own_person(kept[0], table) else []
    return tuple(found) if len(found) == 1 else ()


def _begins_like(column: str, table: FoundTable, called: set[str]) -> bool:
    """Return whether a number is called after the beginning of its table's name, and after no table.

    ``qualifyId`` of ``qualifying`` is, ``orderId`` of ``orderlines`` is not where there are ``orders``.
    """
    stem, _, last = words_of(column).rpartition(" ")
    return (
        last == "id"
        and len(stem) > _SAME_LETTERS
        and stem not in called
        and words_of(own_name(table.name)).startswith(stem)
    )


def _names_of(table: FoundTable, end: str) -> list[str]:
    """Return what a column that refers to a table may be called, in lower case."""
    return [f"{stem}{sep}{end}".casefold() for stem in _called(table) for sep in ("_", "")]


def _called(table: FoundTable) -> list[str]:
    """Return the names of a table in lower case: ``patient`` and ``patients`` hold what its key ``id`` does.

    Names of several words come without underscores, too: ``ProductCategoryKey`` is of ``product_categories``.
    """
    names = (singular(table.name), own_name(table.name).casefold())
    return list(dict.fromkeys((*names, *(name.replace("_", "") for name in names))))


def _primary(
    table: FoundTable, shared: dict[str, tuple[str, ...]], own: dict[str, tuple[str, ...]], elsewhere: frozenset[str]
) -> tuple[str, ...]:
    """Return the primary key that a table has, or probably has.

    A column called after the table that stands behind another table's key, and that nothing refers to, numbers rows
    within that one: ``order_id, order_item_id``.
    """
    taken = {key[0].casefold() for name, key in own.items() if name != table.name and len(key) == 1} - _ID_ALONE
    mine = frozenset(name.casefold() for name in shared[table.name])
    if found := own[table.name]:
        first = table.columns[0].name
        within = not table.primary_key and first.casefold() in taken and found[0].casefold() not in elsewhere
        return (first, *found) if within else found
    if not mine or mine <= taken:
        return ()
    others = [frozenset(map(str.casefold, names)) for name, names in shared.items() if name != table.name]
    if mine in others or not any(mine < other for other in others):
        return ()
    alone = frozenset().union(*(other for other in others if len(other) == 1))
    # A column and its table begin with the same letters: ``personid`` and ``perpub``.
    named = any(name[:_SAME_LETTERS] == table.name.casefold()[:_SAME_LETTERS] for name in mine - alone)
    return shared[table.name] if len(mine) == 1 or named else ()


def _references(table: FoundTable, keyed: list[FoundTable]) -> Iterator[tuple[FoundKey, bool]]:
    """Yield the keys of a table to others, longest first, without those that follow from a longer one.

    Each comes with whether it is called like what it refers to; ``OwnerUserId`` says more.
    """
    found = [key for parent in keyed if parent.name != table.name for key in _reference(table, parent)]
    kept: list[FoundKey] = []
    for key, plain in sorted(found, key=lambda found: (-len(found[0].columns), not found[1])):
        if not any(set(key.columns) <= set(other.columns) for other in kept):
            kept.append(key)
            yield key, plain


def _reference(table: FoundTable, parent: FoundTable) -> Iterator[tuple[FoundKey, bool]]:
    here = {name.casefold(): column for name, column in table.usable.items()}
    primary = [parent.column(name) for name in parent.primary_key]
    if not primary:
        return
    if len(primary) > 1:
        groups = [([column.name.casefold() for column in primary], True)]
    else:
        name = primary[0].name.casefold()
        alone = name in _ID_ALONE
        usual = [name for end in ("id", "key") for name in _names_of(parent, end)]
        plain = [*_names_of(parent, name), *(_called(parent) if alone else [name, *usual])]
        called = [f"{singular(parent.name)}_id", *([] if alone else [primary[0].name])]
        ends = tuple(f" {words_of(each)}" for each in called)
        groups = [([other], True) for other in plain]
        groups += [([other], False) for other, column in here.items() if words_of(column.name).endswith(ends)]
    seen = {table.primary_key}
    for group, is_plain in groups:
        columns = [here[name] for name in group if name in here]
        mine = tuple(column.name for column in columns)
        same = [column.type for column in columns] == [column.type for column in primary]
        if same and mine not in seen:
            seen.add(mine)
            yield FoundKey(mine, parent.name, parent.primary_key), is_plain


# Numbers that begin anew with each owner, or each combination of the rest of the key: last words of their names, and
# whole names. A ``game_num`` may be a number that others give, as that of a house.
_COUNTING = (
    r"(line|item|row|seq|sequence|part|page|step|stint|version|revision|instal+ment|attempt)"
    r"( ?(no|nr|num|number|index|idx))?|(sort|display) order|ordinal|position|idx|index|counter"
)
_COUNTING_ALONE = frozenset({"no", "nr", "num", "number"})


def numbered_columns(table: FoundTable) -> dict[str, tuple[str, ...]]:
    """Return the columns of the primary key that are numbered, each with remarks for the owner of the draft.

    Args:
        table: With those keys alone that its spec declares.
    """
    references = {name for key in table.foreign_keys for name in key.columns}
    own = [table.column(name) for name in table.primary_key if name not in references]
    if len(table.primary_key) == 1:
        return {column.name: () for column in own}
    found = ((column.name, _why_numbered(table, column)) for column in own)
    return {name: (why,) for name, why in found if why is not None}


def _why_numbered(table: FoundTable, column: FoundColumn) -> str | None:
    """Return why a column of a key of several columns is numbered, None if it holds a meaning."""
    kind = column.type
    from_sequence = column.identity or "nextval" in (column.default or "").casefold()
    if from_sequence or is_called_like_key(table.name, column.name) or kind is ColumnType.UUID:
        return "numbers the rows; declare a domain to keep its values"
    counts = ends_with(column.name, _COUNTING) or words_of(column.name) in _COUNTING_ALONE
    if kind is ColumnType.INTEGER and counts:
        return "numbers the rows within the rest of the key; declare a domain to keep its values"
    stored = parse_sql_type(column.sql_type) if column.sql_type else None
    guess = guess_identifying(column, table.name, stored.length if stored else None)
    if guess is not None and guess.of_persons:
        return f"looks like {guess.what}: numbered"
    return None


def referring_attributes(table: FoundTable, catalogue: Catalogue, outside: Collection[str]) -> frozenset[str]:
    """Return the columns of references to public rows alone that have an order: dates, and numbers that name no row.

    A number names a row where it is the key of a table, or called like one.
    """
    found, others = set[str](), set[str]()
    for key in table.foreign_keys:
        if key.parent not in outside:
            others.update(key.columns)
            continue
        naming = {o.columns[0] for o in catalogue.table(key.parent).foreign_keys if len(o.columns) == 1}
        for name, target in zip(key.columns, key.parent_columns, strict=True):
            kind = table.usable[name].type
            number = kind is ColumnType.INTEGER and target not in naming
            if kind and (kind.logical.calendar or (number and orders_rows(name, alone=len(key.columns) == 1))):
                found.add(name)
    return frozenset(found - others - ({*table.primary_key} if len(table.primary_key) == 1 else set()))
