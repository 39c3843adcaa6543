-- A made-up company (strangers_saas.py): money arrives in cents.
CREATE TABLE plans (plan VARCHAR PRIMARY KEY, price DECIMAL(10, 2) NOT NULL, seats INTEGER NOT NULL);
INSERT INTO plans SELECT plan, price / 100, seats FROM made_plans;

CREATE TABLE accounts (
    id INTEGER PRIMARY KEY, name VARCHAR NOT NULL, country VARCHAR NOT NULL, currency VARCHAR NOT NULL,
    region VARCHAR NOT NULL, status VARCHAR NOT NULL, created_at TIMESTAMP NOT NULL, first_login_at TIMESTAMP,
    last_seen_at TIMESTAMP, churned_at TIMESTAMP, settings JSON NOT NULL
);
INSERT INTO accounts FROM made_accounts;

CREATE TABLE users (
    id INTEGER PRIMARY KEY, account_id INTEGER NOT NULL REFERENCES accounts (id), name VARCHAR NOT NULL,
    email VARCHAR NOT NULL UNIQUE, created_at TIMESTAMP NOT NULL, last_login_at TIMESTAMP, two_factor BOOLEAN NOT NULL
);
INSERT INTO users FROM made_users;

CREATE TABLE memberships (
    user_id INTEGER REFERENCES users (id), account_id INTEGER REFERENCES accounts (id), role VARCHAR NOT NULL,
    joined_at TIMESTAMP NOT NULL,
    PRIMARY KEY (user_id, account_id)
);
INSERT INTO memberships FROM made_memberships;

CREATE TABLE projects (
    id INTEGER PRIMARY KEY, account_id INTEGER NOT NULL REFERENCES accounts (id), name VARCHAR NOT NULL,
    visibility VARCHAR NOT NULL, created_at TIMESTAMP NOT NULL, archived_at TIMESTAMP, budget DOUBLE
);
INSERT INTO projects FROM made_projects;

CREATE TABLE tickets (
    id INTEGER PRIMARY KEY, project_id INTEGER NOT NULL REFERENCES projects (id), number INTEGER NOT NULL,
    reporter_id INTEGER NOT NULL REFERENCES users (id), assignee_id INTEGER REFERENCES users (id), status VARCHAR NOT NULL,
    priority VARCHAR NOT NULL, created_at TIMESTAMP NOT NULL, created_year INTEGER NOT NULL, closed_at TIMESTAMP,
    estimate_hours DOUBLE,
    UNIQUE (project_id, number)
);
INSERT INTO tickets BY NAME SELECT *, year(created_at) created_year FROM made_tickets;

CREATE TABLE labels (
    project_id INTEGER REFERENCES projects (id), name VARCHAR, color VARCHAR NOT NULL,
    PRIMARY KEY (project_id, name)
);
INSERT INTO labels FROM made_labels;

CREATE TABLE ticket_labels (
    ticket_id INTEGER REFERENCES tickets (id), project_id INTEGER, label VARCHAR,
    PRIMARY KEY (ticket_id, project_id, label), FOREIGN KEY (project_id, label) REFERENCES labels (project_id, name)
);
INSERT INTO ticket_labels FROM made_ticket_labels;

CREATE TABLE comments (
    id INTEGER PRIMARY KEY, ticket_id INTEGER NOT NULL REFERENCES tickets (id),
    author_id INTEGER NOT NULL REFERENCES users (id), created_at TIMESTAMP NOT NULL, body VARCHAR NOT NULL,
    edited BOOLEAN NOT NULL
);
INSERT INTO comments FROM made_comments;

CREATE TABLE attachments (
    id INTEGER PRIMARY KEY, ticket_id INTEGER NOT NULL REFERENCES tickets (id),
    uploaded_by INTEGER NOT NULL REFERENCES users (id), file_name VARCHAR NOT NULL, content_type VARCHAR NOT NULL,
    bytes BIGINT NOT NULL, uploaded_at TIMESTAMP NOT NULL
);
INSERT INTO attachments FROM made_attachments;

CREATE TABLE subscriptions (
    id INTEGER PRIMARY KEY, account_id INTEGER NOT NULL REFERENCES accounts (id),
    plan VARCHAR NOT NULL REFERENCES plans (plan), seats INTEGER NOT NULL, unit_price DOUBLE NOT NULL,
    started_on DATE NOT NULL, ended_on DATE
);
INSERT INTO subscriptions
SELECT id, account_id, plan, seats, unit_price / 100, started_on, ended_on FROM made_subscriptions;

CREATE TABLE invoices (
    id INTEGER PRIMARY KEY, subscription_id INTEGER NOT NULL REFERENCES subscriptions (id),
    account_id INTEGER NOT NULL REFERENCES accounts (id), number VARCHAR NOT NULL UNIQUE, currency VARCHAR NOT NULL,
    issued_on DATE NOT NULL, due_on DATE NOT NULL, paid_on DATE, year INTEGER NOT NULL, total DECIMAL(12, 2) NOT NULL
);
INSERT INTO invoices BY NAME
SELECT * EXCLUDE (total), total / 100 total, year(issued_on) AS year FROM made_invoices;

CREATE TABLE invoice_lines (
    invoice_id INTEGER REFERENCES invoices (id), line INTEGER, description VARCHAR NOT NULL, quantity INTEGER NOT NULL,
    unit_price DECIMAL(10, 2) NOT NULL, amount DECIMAL(12, 2) NOT NULL,
    PRIMARY KEY (invoice_id, line)
);
INSERT INTO invoice_lines
SELECT invoice_id, line, description, quantity, unit_price / 100, quantity * unit_price / 100 FROM made_invoice_lines;

CREATE TABLE api_keys (
    id UUID PRIMARY KEY, account_id INTEGER NOT NULL REFERENCES accounts (id), scopes VARCHAR[] NOT NULL,
    created_at TIMESTAMP NOT NULL, revoked_at TIMESTAMP
);
INSERT INTO api_keys FROM made_api_keys;

CREATE TABLE audit_log (
    id BIGINT, "at" TIMESTAMP, account_id INTEGER NOT NULL REFERENCES accounts (id),
    user_id INTEGER NOT NULL REFERENCES users (id), action VARCHAR NOT NULL,
    PRIMARY KEY (id, "at")
);
INSERT INTO audit_log FROM made_audit_log;

CREATE TABLE events (
    id BIGINT PRIMARY KEY, account_id INTEGER NOT NULL REFERENCES accounts (id),
    user_id INTEGER NOT NULL REFERENCES users (id), name VARCHAR NOT NULL, "at" TIMESTAMP NOT NULL, payload JSON NOT NULL,
    tags VARCHAR[] NOT NULL
);
INSERT INTO events FROM made_events;
