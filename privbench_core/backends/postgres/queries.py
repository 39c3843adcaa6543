"""What is asked of PostgreSQL's catalogue, and never of a row."""

from __future__ import annotations

_OWN = (  # neither of an extension nor of the system
    "NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = r.oid AND deptype = 'e')"
    " AND left(n.nspname, 3) <> 'pg_' AND n.nspname <> 'information_schema'"
)
_CHOSEN = "CAST(:schemas AS text[])"
_HERE = f"pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace WHERE n.nspname = ANY({_CHOSEN}) AND {_OWN}"
# Tables of the first schema are called by their name alone, see `Schema`.
_PREFIX = f"CASE WHEN n.nspname = ({_CHOSEN})[1] THEN '' ELSE concat(n.nspname, '.') END"
_CALLED = f"{_PREFIX} || r.relname"
# A partition, or a table that inherits (an heir), is no table of its own: its rows are those of the table above.
_TABLES = (
    f"WITH RECURSIVE c AS (SELECT r.*, n.nspname, {_CALLED} AS called, EXISTS (SELECT FROM pg_inherits i"
    " JOIN pg_class u ON u.oid = i.inhparent JOIN pg_namespace m ON m.oid = u.relnamespace WHERE i.inhrelid = r.oid"
    f" AND m.nspname = ANY({_CHOSEN})) AS is_heir FROM {_HERE} AND r.relkind IN ('r', 'p')"
    " AND NOT r.relispartition),"
    " family AS (SELECT oid AS root, oid AS member, oid AS above, 0 AS level FROM c UNION SELECT root, inhrelid,"
    " inhparent, level + 1 FROM family JOIN pg_inherits ON inhparent = member JOIN c ON c.oid = root AND NOT is_heir)"
)
SCHEMAS = (
    "SELECT n.nspname AS name, has_schema_privilege(n.oid, 'USAGE') AS usable, EXISTS (SELECT FROM pg_class r WHERE"
    f" r.relnamespace = n.oid AND r.relkind IN ('r', 'p') AND {_OWN}) AS filled,"
    " coalesce(n.nspname = current_schema(), false) AS current, current_database() AS database,"
    " current_setting('search_path') AS path FROM pg_namespace n ORDER BY current DESC, n.nspname"
)
_NAMES = (
    "(SELECT array_agg(attname::text ORDER BY place) FROM unnest({keys}) WITH ORDINALITY AS w(number, place)"
    " JOIN pg_attribute ON attrelid = {table} AND attnum = number)"
)
_SAME_COLUMNS = "{own} @> {there} AND {own} <@ {there}".format(
    own=_NAMES.format(keys="y.conkey", table="y.conrelid"), there=_NAMES.format(keys="k.confkey", table="k.confrelid")
)
# What is not there in another database and not made by a schema.sql either: functions, operators and types of one's
# own (an enum is made), sequences.
_FOREIGN = (
    "(SELECT min(pg_describe_object(p.refclassid, p.refobjid, 0)) FROM pg_depend p WHERE {who}"
    " AND p.refobjid >= 16384 AND p.deptype = 'n' AND CASE"
    " WHEN p.refclassid = 'pg_class'::regclass THEN (SELECT relkind = 'S' FROM pg_class r WHERE r.oid = p.refobjid)"
    " WHEN p.refclassid = 'pg_type'::regclass THEN (SELECT typtype <> 'e' FROM pg_type r WHERE r.oid = p.refobjid)"
    " ELSE p.refclassid <> 'pg_constraint'::regclass END)"
)
_READ = (
    "(SELECT array_agg(DISTINCT u.attname::text) FROM pg_depend p JOIN pg_attribute u ON u.attrelid = p.refobjid"
    " AND u.attnum = p.refobjsubid WHERE {who} AND p.refclassid = 'pg_class'::regclass AND p.refobjid = c.oid"
    " AND p.refobjsubid > 0 {but})"
)
_INDEX = "p.classid = 'pg_class'::regclass AND p.objid = i.oid"
_PARTED = (
    "p.classid = 'pg_class'::regclass AND p.objid = u.oid AND p.objsubid = 0 AND p.refclassid IN ('pg_proc'::regclass,"
    " 'pg_opclass'::regclass, 'pg_collation'::regclass)"
)
_CONSTRAINT = "p.classid = 'pg_constraint'::regclass AND p.objid = k.oid"
# Versions differ in whether the column or its expression depends on others.
_EXPRESSION = (
    "(p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid"
    " OR p.classid = 'pg_class'::regclass AND p.objid = c.oid AND p.objsubid = a.attnum"
    " AND p.refclassid IN ('pg_class'::regclass, 'pg_proc'::regclass))"
)
# The types that a domain stands for, one under the other, to the first that is no domain.
_BASES = (
    "CROSS JOIN LATERAL (WITH RECURSIVE down AS (SELECT t.oid, t.typtype, t.typbasetype, a.atttypmod AS mod,"
    " t.typnotnull AS firm, 0 AS depth UNION ALL SELECT b.oid, b.typtype, b.typbasetype, down_.typtypmod,"
    " down.firm OR b.typnotnull, depth + 1 FROM down JOIN pg_type down_ ON down_.oid = down.oid"
    " JOIN pg_type b ON b.oid = down.typbasetype WHERE down.typtype = 'd')"
    " SELECT * FROM down ORDER BY depth DESC LIMIT 1) base JOIN pg_type e ON e.oid = base.oid"
)

_RULE = "p.classid = 'pg_rewrite'::regclass AND p.objid IN (SELECT oid FROM pg_rewrite WHERE ev_class = v.oid)"

QUERIES = {
    # What is in the first schema is then printed without it.
    "path": f"SELECT set_config('search_path', quote_ident(({_CHOSEN})[1]), true)",
    "others": f"{_TABLES} SELECT 'trigger' AS kind, concat(tgname, ' on ', called) AS called FROM c JOIN pg_trigger"
    f" ON tgrelid = c.oid AND NOT tgisinternal UNION SELECT 'function', {_PREFIX} || f.proname FROM pg_proc f"
    f" JOIN pg_namespace n ON n.oid = f.pronamespace WHERE n.nspname = ANY({_CHOSEN}) AND NOT EXISTS (SELECT"
    " FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = f.oid AND deptype = 'e')"
    " UNION SELECT 'rule', concat(rulename, ' on ', called) FROM c JOIN pg_rewrite ON ev_class = c.oid"
    " UNION SELECT 'extension', extname FROM pg_extension WHERE extname <> 'plpgsql'"
    f" UNION SELECT 'foreign table', {_CALLED} FROM {_HERE} AND r.relkind = 'f' AND NOT r.relispartition"
    f" UNION SELECT 'sequence', {_CALLED} FROM {_HERE} AND r.relkind = 'S' AND NOT EXISTS (SELECT FROM pg_depend"
    " WHERE classid = 'pg_class'::regclass AND objid = r.oid AND refclassid = classid) ORDER BY kind, called",
    "views": f"WITH v AS (SELECT r.oid, r.relkind, {_CALLED} AS called FROM {_HERE} AND r.relkind IN ('v', 'm'))"
    " SELECT called, relkind = 'm' AS materialized, trim(TRAILING ';' FROM pg_get_viewdef(v.oid, true)) AS definition,"
    f" {_FOREIGN.format(who=_RULE)} AS needs, (SELECT jsonb_agg(DISTINCT jsonb_build_array({_CALLED}, a.attname))"
    " FROM pg_depend p JOIN pg_class r ON r.oid = p.refobjid AND r.oid <> v.oid JOIN pg_namespace n"
    " ON n.oid = r.relnamespace LEFT JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = p.refobjsubid"
    f" AND a.attnum > 0 WHERE {_RULE} AND p.refclassid = 'pg_class'::regclass) AS reads FROM v ORDER BY v.oid",
    "tables": f"{_TABLES} SELECT called, relname, obj_description(oid, 'pg_class') AS comment,"
    " CASE WHEN relkind = 'p' THEN pg_get_partkeydef(oid) END AS partitioned, relrowsecurity AS guarded,"
    " is_heir, EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid) AS has_heirs, oid::regclass::text AS written,"
    " ARRAY(SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = c.oid) AS inherits,"
    " CASE WHEN relkind = 'r' THEN ARRAY(SELECT member::regclass::text FROM family WHERE root = c.oid AND level > 0"
    " ORDER BY 1) ELSE '{}' END AS heirs,"
    " (SELECT string_agg(DISTINCT h.attname::text, ', ') FROM family JOIN pg_attribute h ON h.attrelid = member"
    " AND h.attnum > 0 AND NOT h.attisdropped WHERE root = c.oid"
    " AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = h.attname)) AS of_heirs,"
    " (SELECT string_agg(i.relname, ', ' ORDER BY i.relname) FROM family JOIN pg_index x ON x.indrelid = member"
    " JOIN pg_class i ON i.oid = x.indexrelid WHERE root = c.oid AND level > 0 AND c.relkind = 'p'"
    " AND NOT i.relispartition AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.oid"
    " AND contype IN ('p', 'u', 'x'))) AS indexes FROM c"
    f" ORDER BY array_position({_CHOSEN}, nspname::text), relname",
    "partitions": f"{_TABLES} SELECT called, p.relname AS name, u.relname AS above,"
    " regexp_replace(pg_get_expr(p.relpartbound, p.oid), '^FOR VALUES ', '') AS bounds,"
    " CASE WHEN p.relkind = 'p' THEN pg_get_partkeydef(p.oid) END AS by, f.level,"
    f" {_FOREIGN.format(who=_PARTED)} AS needs, (SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute"
    " WHERE attrelid = u.oid AND attnum IN (SELECT objsubid FROM pg_depend WHERE classid = 'pg_class'::regclass"
    " AND refclassid = classid AND objid = u.oid AND refobjid = u.oid AND refobjsubid = 0)) AS columns"
    " FROM c JOIN family f ON f.root = c.oid AND f.level > 0 JOIN pg_class p ON p.oid = f.member AND p.relispartition"
    " JOIN pg_class u ON u.oid = f.above ORDER BY called, f.level, p.relname",
    "columns": f"{_TABLES} SELECT c.called, a.attname AS name, quote_ident(a.attname) AS quoted,"
    " format_type(base.oid, base.mod) AS native,"
    " NOT (a.attnotnull OR base.firm) AS nullable, coalesce(pg_get_expr(d.adbin, d.adrelid), t.typdefault) AS written,"
    " a.attidentity AS identity, a.attgenerated AS generated, col_description(c.oid, a.attnum) AS comment,"
    " CASE WHEN t.typtype = 'd' THEN t.typname END AS domain, CASE WHEN e.typtype = 'e' THEN e.typname::text END"
    " AS enum, (SELECT nspname FROM pg_namespace WHERE oid = e.typnamespace) AS home,"
    " (SELECT array_agg(enumlabel::text ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = e.oid) AS labels,"
    " has_column_privilege(c.oid, a.attnum, 'SELECT') AS readable, (SELECT collname FROM pg_collation"
    " WHERE oid = a.attcollation AND oid <> e.typcollation) AS collation,"
    f" {_FOREIGN.format(who=_EXPRESSION)} AS needs,"
    f" {_READ.format(who=_EXPRESSION, but='AND u.attnum <> a.attnum')} AS made_of,"
    " s.relname AS sequence, q.seqincrement AS increment, NOT q.seqcycle AND q.seqmin = 1 AND q.seqcache = 1 AS plain"
    " FROM c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
    f" JOIN pg_type t ON t.oid = a.atttypid {_BASES}"
    " LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum"
    " LEFT JOIN pg_depend o ON o.refclassid = 'pg_class'::regclass AND o.refobjid = c.oid AND o.refobjsubid = a.attnum"
    " AND o.classid = 'pg_class'::regclass AND o.deptype IN ('a', 'i') AND EXISTS (SELECT FROM pg_sequence"
    " WHERE seqrelid = o.objid) LEFT JOIN pg_class s ON s.oid = o.objid LEFT JOIN pg_sequence q ON q.seqrelid = s.oid"
    " ORDER BY c.called, a.attnum",
    "domain_checks": f"{_TABLES} SELECT c.called, a.attname AS column, quote_ident(a.attname) AS quoted,"
    f" k.conname AS name, pg_get_expr(k.conbin, 0) AS expression, {_FOREIGN.format(who=_CONSTRAINT)} AS needs"
    f" FROM c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped JOIN LATERAL"
    " (WITH RECURSIVE down AS (SELECT a.atttypid AS oid UNION ALL SELECT t.typbasetype FROM down JOIN pg_type t"
    " ON t.oid = down.oid AND t.typtype = 'd') SELECT oid FROM down) base ON true JOIN pg_constraint k"
    " ON k.contypid = base.oid AND k.contype = 'c' AND NOT c.is_heir ORDER BY c.called, a.attnum, k.conname",
    "constraints": f"{_TABLES} SELECT c.called, c.relname, k.conname AS name, k.contype AS kind,"
    f" {_NAMES.format(keys='k.conkey', table='k.conrelid')} AS columns, m.level > 0 AS of_partition,"
    " f.called AS parent, k.confrelid::regclass::text AS target,"
    f" {_NAMES.format(keys='k.confkey', table='k.confrelid')} AS parent_columns,"
    " pg_get_expr(k.conbin, k.conrelid) AS expression, k.convalidated AS valid, k.condeferrable AS deferrable,"
    " k.condeferred AS deferred, k.confupdtype AS on_update, k.confdeltype AS on_delete, k.confmatchtype AS match,"
    " to_jsonb(k) ->> 'confdelsetcols' AS set_columns, to_jsonb(x) ->> 'indnullsnotdistinct' AS nulls_clash,"
    " k.connoinherit AS alone,"
    f" x.indnkeyatts < x.indnatts AS includes, {_FOREIGN.format(who=_CONSTRAINT)} AS needs"
    " FROM c JOIN family m ON m.root = c.oid"
    " JOIN pg_constraint k ON k.conrelid = m.member AND k.conparentid = 0 AND (m.level = 0 OR k.contype = 'f')"
    " AND (k.conislocal OR NOT c.is_heir) LEFT JOIN (family g JOIN c f ON f.oid = g.root AND NOT f.is_heir)"
    " ON g.member = k.confrelid AND (g.level = 0 OR EXISTS"
    f" (SELECT FROM pg_constraint y WHERE y.conrelid = g.root AND y.contype IN ('p', 'u') AND {_SAME_COLUMNS}))"
    " LEFT JOIN pg_index x ON x.indexrelid = k.conindid AND k.contype IN ('p', 'u')"
    " ORDER BY c.called, of_partition, k.conname",
    "indexes": f"{_TABLES} SELECT c.called, i.relname AS name, x.indisunique AS is_unique, x.indisvalid AS valid,"
    f" {_NAMES.format(keys='(x.indkey::int2[])[0:x.indnkeyatts - 1]', table='c.oid')} AS columns,"
    f" {_READ.format(who=_INDEX, but='')} AS made_of, {_FOREIGN.format(who=_INDEX)} AS needs,"
    " x.indexprs IS NOT NULL AS expressions,"
    " pg_get_expr(x.indpred, x.indrelid) AS predicate, substr(pg_get_indexdef(i.oid),"
    " length(concat('CREATE ', CASE WHEN x.indisunique THEN 'UNIQUE ' END, 'INDEX ', quote_ident(i.relname), ' ON ',"
    " CASE WHEN i.relkind = 'I' THEN 'ONLY ' END, quote_ident(c.nspname), '.', quote_ident(c.relname),"
    " ' USING ')) + 1) AS definition, concat('btree (', (SELECT string_agg(quote_ident(attname), ', ' ORDER BY place)"
    " FROM unnest(x.indkey::int2[]) WITH ORDINALITY AS k(number, place) JOIN pg_attribute ON attrelid = c.oid"
    " AND attnum = number), ')') AS usual FROM c JOIN pg_index x ON x.indrelid = c.oid"
    " JOIN pg_class i ON i.oid = x.indexrelid WHERE NOT EXISTS (SELECT FROM pg_constraint k"
    " WHERE k.conindid = i.oid AND k.contype IN ('p', 'u', 'x')) ORDER BY c.called, i.relname",
}
