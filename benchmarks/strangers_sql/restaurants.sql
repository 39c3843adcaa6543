-- Inspections of food businesses in San Francisco: rows are known by business and date.
CREATE TABLE businesses (
    business_id INTEGER PRIMARY KEY, name VARCHAR NOT NULL, address VARCHAR NOT NULL, city VARCHAR NOT NULL,
    state VARCHAR NOT NULL, postal_code VARCHAR, latitude DOUBLE, longitude DOUBLE, phone_number VARCHAR
);
INSERT INTO businesses SELECT * FROM read_csv('businesses.csv');

CREATE TABLE inspections (
    business_id INTEGER REFERENCES businesses (business_id), score DOUBLE NOT NULL, date DATE, type VARCHAR NOT NULL,
    PRIMARY KEY (business_id, date)
);
INSERT OR IGNORE INTO inspections
SELECT business_id, score, strptime(date::VARCHAR, '%Y%m%d'), type FROM read_csv('inspections.csv');

CREATE TABLE violations (
    business_id INTEGER, date DATE, description VARCHAR, corrected_on DATE,
    PRIMARY KEY (business_id, date, description),
    FOREIGN KEY (business_id, date) REFERENCES inspections (business_id, date)
);
CREATE TEMP TABLE found AS
SELECT business_id, strptime(date::VARCHAR, '%Y%m%d')::DATE date, trim(split_part(description, '[', 1)) description,
    try_strptime(regexp_extract(description, 'corrected: ([0-9/]+)', 1), '%m/%d/%Y')::DATE corrected_on
FROM read_csv('violations.csv');
INSERT OR IGNORE INTO violations
SELECT * FROM found WHERE (business_id, date) IN (SELECT (business_id, date) FROM inspections);
