-- The eight tables of the shop, for DuckDB and PostgreSQL.
CREATE TYPE segment AS ENUM ('consumer', 'business', 'wholesale');
CREATE TYPE order_status AS ENUM ('placed', 'paid', 'shipped', 'delivered', 'returned', 'cancelled');
CREATE TYPE payment_method AS ENUM ('card', 'paypal', 'invoice', 'voucher');

CREATE TABLE category (
    id integer PRIMARY KEY, parent_id integer REFERENCES category (id), name varchar(40) NOT NULL
);
CREATE TABLE product (
    sku varchar(12) PRIMARY KEY, category_id integer NOT NULL REFERENCES category (id), name varchar(80) NOT NULL,
    price numeric(10, 2) NOT NULL, weight_g integer NOT NULL, launched_on date NOT NULL, discontinued_on date,
    attributes json NOT NULL, CHECK (price >= 0)
);
CREATE TABLE customer (
    id integer PRIMARY KEY, email varchar(120) NOT NULL UNIQUE, full_name varchar(80) NOT NULL,
    segment segment NOT NULL, company varchar(80), birth_date date, country char(2) NOT NULL, currency char(3) NOT NULL,
    registered_at timestamp NOT NULL, last_seen_at timestamp, newsletter boolean NOT NULL, settings json NOT NULL
);
CREATE TABLE address (
    customer_id integer REFERENCES customer (id), line integer, street varchar(80) NOT NULL,
    postcode varchar(10) NOT NULL, city varchar(40) NOT NULL, country char(2) NOT NULL,
    PRIMARY KEY (customer_id, line)
);
CREATE TABLE orders (
    id integer PRIMARY KEY, customer_id integer NOT NULL REFERENCES customer (id), billing_line integer NOT NULL,
    shipping_line integer, status order_status NOT NULL, channel varchar(10) NOT NULL, placed_at timestamp NOT NULL,
    paid_at timestamp, shipped_at timestamp, delivered_at timestamp, currency char(3) NOT NULL,
    goods numeric(12, 2) NOT NULL, shipping numeric(8, 2) NOT NULL, total numeric(12, 2) NOT NULL, note text,
    FOREIGN KEY (customer_id, billing_line) REFERENCES address (customer_id, line),
    FOREIGN KEY (customer_id, shipping_line) REFERENCES address (customer_id, line),
    CHECK (total = goods + shipping), CHECK (paid_at >= placed_at), CHECK (shipped_at >= paid_at),
    CHECK (delivered_at >= shipped_at)
);
CREATE TABLE order_line (
    order_id integer REFERENCES orders (id), line integer, sku varchar(12) NOT NULL REFERENCES product (sku),
    quantity integer NOT NULL, unit_price numeric(10, 2) NOT NULL, amount numeric(12, 2) NOT NULL,
    PRIMARY KEY (order_id, line), CHECK (quantity > 0)
);
CREATE TABLE payment (
    id integer PRIMARY KEY, order_id integer NOT NULL REFERENCES orders (id), method payment_method NOT NULL,
    amount numeric(12, 2) NOT NULL, made_at timestamp NOT NULL, refunded_at timestamp
);
CREATE TABLE review (
    customer_id integer REFERENCES customer (id), sku varchar(12) REFERENCES product (sku), rating integer NOT NULL,
    title varchar(80), written_at timestamp NOT NULL,
    PRIMARY KEY (customer_id, sku), CHECK (rating BETWEEN 1 AND 5)
);
