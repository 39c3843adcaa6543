-- A Czech bank (PKDD'99); an account has clients, orders, loans and cards.
CREATE TABLE district (
    district_id INTEGER PRIMARY KEY, A2 VARCHAR NOT NULL, A3 VARCHAR NOT NULL, A4 INTEGER NOT NULL, A5 INTEGER NOT NULL,
    A6 INTEGER NOT NULL, A7 INTEGER NOT NULL, A8 INTEGER NOT NULL, A9 INTEGER NOT NULL, A10 DOUBLE NOT NULL,
    A11 INTEGER NOT NULL, A12 DOUBLE, A13 DOUBLE NOT NULL, A14 INTEGER NOT NULL, A15 INTEGER, A16 INTEGER NOT NULL
);
INSERT INTO district SELECT * FROM read_csv('data/district.csv');

CREATE TABLE account (
    account_id INTEGER PRIMARY KEY, district_id INTEGER NOT NULL REFERENCES district (district_id),
    frequency VARCHAR NOT NULL, date DATE NOT NULL
);
INSERT INTO account SELECT * FROM read_csv('data/account.csv');

-- Every client has one disposition, and their columns are together here, so that an account owns them.
CREATE TABLE disp (
    disp_id INTEGER PRIMARY KEY, client_id INTEGER NOT NULL UNIQUE,
    account_id INTEGER NOT NULL REFERENCES account (account_id), type VARCHAR NOT NULL, gender VARCHAR NOT NULL,
    birth_date DATE NOT NULL, district_id INTEGER NOT NULL REFERENCES district (district_id)
);
INSERT INTO disp
SELECT disp.*, gender, birth_date, district_id
FROM read_csv('data/disp.csv') disp JOIN read_csv('data/client.csv') client USING (client_id) ORDER BY disp_id;

CREATE TABLE card (
    card_id INTEGER PRIMARY KEY, disp_id INTEGER NOT NULL UNIQUE REFERENCES disp (disp_id), type VARCHAR NOT NULL,
    issued DATE NOT NULL
);
INSERT INTO card SELECT * FROM read_csv('data/card.csv');

CREATE TABLE loan (
    loan_id INTEGER PRIMARY KEY, account_id INTEGER NOT NULL UNIQUE REFERENCES account (account_id), date DATE NOT NULL,
    amount INTEGER NOT NULL, duration INTEGER NOT NULL, payments DOUBLE NOT NULL, status VARCHAR NOT NULL
);
INSERT INTO loan SELECT * FROM read_csv('data/loan.csv');

CREATE TABLE "order" (
    order_id INTEGER PRIMARY KEY, account_id INTEGER NOT NULL REFERENCES account (account_id), bank_to VARCHAR NOT NULL,
    account_to INTEGER NOT NULL, amount DOUBLE NOT NULL, k_symbol VARCHAR
);
INSERT INTO "order" SELECT * FROM read_csv('data/order.csv');
