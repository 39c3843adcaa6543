-- The ledger's tables, to be run once by a role that owns them and that privbench does not log in as:
--     sudo -u postgres psql -d ledger -v ON_ERROR_STOP=1 -c 'set role ledger_owner' -f - < ledger.sql
-- privbench's own role, here privbench, may then add rows and read them, and nothing else.
begin;
create table ledger_layout(version integer not null, at text not null);
create table lifetime(
    id bigint generated always as identity primary key, database text not null, unit text not null, epsilon double precision not null,
    delta double precision not null, at text not null);
create table reservation(
    id bigint generated always as identity primary key, database text not null, account text not null, release text not null, step text not null,
    run text not null, measure text not null check (measure in ('pure', 'gdp')),
    amount double precision not null check (amount >= 0), rho double precision not null check (rho >= 0),
    delta double precision not null check (delta >= 0), at text not null);
create index reservation_by_account on reservation(database, account);
create index reservation_by_release on reservation(release);
create table charge(
    id bigint generated always as identity primary key, reservation bigint not null references reservation, label text not null,
    amount double precision not null, delta double precision not null, at text not null);
create index charge_by_reservation on charge(reservation);
create table result(
    reservation bigint primary key references reservation, digest text not null, at text not null);
create table state_folder(id bigint generated always as identity primary key, database text not null, mark text not null, at text not null);
create table neighbour_relation(
    id bigint generated always as identity primary key, database text not null, account text not null, name text not null, facts text not null, at text not null,
    unique (database, account, name));
create table hold(
    id bigint generated always as identity primary key, database text not null, account text not null, purpose text not null, mark text not null,
    measure text not null check (measure in ('pure', 'gdp')), amount double precision not null check (amount >= 0),
    delta double precision not null check (delta >= 0), at text not null);
create index hold_by_account on hold(database, account);
create table hold_draw(
    id bigint generated always as identity primary key, hold bigint not null references hold, reservation bigint not null references reservation,
    at text not null);
create index hold_draw_by_hold on hold_draw(hold);
create table hold_end(hold bigint primary key references hold, at text not null);
create function refuse_change() returns trigger language plpgsql as
    $$ begin raise exception 'append only'; end $$;
create trigger ledger_layout_stays before update or delete or truncate on ledger_layout
    for each statement execute function refuse_change();
create trigger lifetime_stays before update or delete or truncate on lifetime
    for each statement execute function refuse_change();
create trigger reservation_stays before update or delete or truncate on reservation
    for each statement execute function refuse_change();
create trigger charge_stays before update or delete or truncate on charge
    for each statement execute function refuse_change();
create trigger result_stays before update or delete or truncate on result
    for each statement execute function refuse_change();
create trigger state_folder_stays before update or delete or truncate on state_folder
    for each statement execute function refuse_change();
create trigger neighbour_relation_stays before update or delete or truncate on neighbour_relation
    for each statement execute function refuse_change();
create trigger hold_stays before update or delete or truncate on hold
    for each statement execute function refuse_change();
create trigger hold_draw_stays before update or delete or truncate on hold_draw
    for each statement execute function refuse_change();
create trigger hold_end_stays before update or delete or truncate on hold_end
    for each statement execute function refuse_change();
insert into ledger_layout(version, at) values (4, now());
grant select, insert on ledger_layout, lifetime, reservation, charge, result, state_folder, neighbour_relation, hold, hold_draw, hold_end to privbench;
commit;
