-- For a ledger of layout 2, as an earlier privbench made it: adds the tables of layout 3, and changes nothing else. To be
-- run once by the role that owns its tables:
--     sudo -u postgres psql -d ledger -v ON_ERROR_STOP=1 -c 'set role ledger_owner' -f - < ledger_2_to_3.sql
-- privbench's own role, here privbench, may then add rows to them and read them, and nothing else.
begin;
create table neighbour_relation(
    id bigint generated always as identity primary key, database text not null, account text not null, name text not null, facts text not null, at text not null,
    unique (database, account, name));
create table hold(
    id bigint generated always as identity primary key, database text not null, account text not null, purpose text not null, mark text not null,
    measure text not null check (measure in ('pure', 'zcdp')), amount double precision not null check (amount >= 0),
    delta double precision not null check (delta >= 0), at text not null);
create index hold_by_account on hold(database, account);
create table hold_draw(
    id bigint generated always as identity primary key, hold bigint not null references hold, reservation bigint not null references reservation,
    at text not null);
create index hold_draw_by_hold on hold_draw(hold);
create table hold_end(hold bigint primary key references hold, at text not null);
create trigger neighbour_relation_stays before update or delete or truncate on neighbour_relation
    for each statement execute function refuse_change();
create trigger hold_stays before update or delete or truncate on hold
    for each statement execute function refuse_change();
create trigger hold_draw_stays before update or delete or truncate on hold_draw
    for each statement execute function refuse_change();
create trigger hold_end_stays before update or delete or truncate on hold_end
    for each statement execute function refuse_change();
insert into ledger_layout(version, at) values (3, now());
grant select, insert on neighbour_relation, hold, hold_draw, hold_end to privbench;
commit;
