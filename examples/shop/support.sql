-- Its support desk, and the indexes that its queries use, for PostgreSQL.
CREATE TABLE agent (id integer PRIMARY KEY, name varchar(40) NOT NULL, team varchar(20) NOT NULL);
CREATE TABLE ticket (
    id integer PRIMARY KEY, customer_id integer NOT NULL REFERENCES customer (id),
    order_id integer REFERENCES orders (id), agent_id integer REFERENCES agent (id), topic varchar(20) NOT NULL,
    tags text[] NOT NULL,
    opened_at timestamptz NOT NULL, closed_at timestamptz, CHECK (closed_at >= opened_at)
);
CREATE TABLE message (
    ticket_id integer REFERENCES ticket (id), number integer, by_customer boolean NOT NULL,
    sent_at timestamptz NOT NULL, characters integer NOT NULL, PRIMARY KEY (ticket_id, number)
);
CREATE INDEX ON orders (customer_id);
CREATE INDEX ON orders (placed_at);
CREATE INDEX ON order_line (sku);
CREATE INDEX ON payment (order_id);
CREATE INDEX ON ticket (customer_id, opened_at DESC);
CREATE INDEX ON ticket (opened_at) WHERE closed_at IS NULL;
CREATE INDEX ON ticket USING gin (tags);
