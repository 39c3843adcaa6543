-- A year of 590 households at a supermarket: money in doubles.
CREATE TABLE household (household_id INTEGER PRIMARY KEY);
INSERT INTO household
SELECT household_id FROM (SELECT DISTINCT household_id::INTEGER household_id FROM 'transactions.parquet')
ORDER BY hash(household_id) LIMIT 590;

CREATE TABLE products (
    product_id INTEGER PRIMARY KEY, manufacturer_id INTEGER NOT NULL, department VARCHAR, brand VARCHAR NOT NULL,
    product_category VARCHAR, product_type VARCHAR, package_size VARCHAR
);
INSERT INTO products SELECT * FROM 'products.parquet';

CREATE TABLE demographics (
    household_id INTEGER PRIMARY KEY REFERENCES household (household_id), age VARCHAR NOT NULL, income VARCHAR NOT NULL,
    home_ownership VARCHAR, marital_status VARCHAR, household_size VARCHAR, household_comp VARCHAR, kids_count VARCHAR
);
INSERT INTO demographics SELECT * FROM 'demographics.parquet' WHERE household_id::INTEGER IN (FROM household);

CREATE TEMP TABLE bought AS
SELECT * FROM 'transactions.parquet'
WHERE household_id::INTEGER IN (FROM household) AND product_id::INTEGER IN (SELECT product_id FROM products);
CREATE TABLE basket (
    basket_id BIGINT PRIMARY KEY, household_id INTEGER NOT NULL REFERENCES household (household_id),
    store_id INTEGER NOT NULL, week INTEGER NOT NULL, transaction_timestamp TIMESTAMP NOT NULL
);
INSERT INTO basket
SELECT basket_id, min(household_id::INTEGER), min(store_id::INTEGER), min(week), min(transaction_timestamp)
FROM bought GROUP BY basket_id ORDER BY basket_id;

CREATE TABLE transactions (
    basket_id BIGINT REFERENCES basket (basket_id), product_id INTEGER REFERENCES products (product_id),
    quantity INTEGER NOT NULL, sales_value DOUBLE NOT NULL, retail_disc DOUBLE NOT NULL, coupon_disc DOUBLE NOT NULL,
    coupon_match_disc DOUBLE NOT NULL,
    PRIMARY KEY (basket_id, product_id)
);
INSERT OR IGNORE INTO transactions
SELECT basket_id, product_id, quantity, sales_value, retail_disc, coupon_disc, coupon_match_disc FROM bought;

CREATE TABLE campaign_descriptions (
    campaign_id INTEGER PRIMARY KEY, campaign_type VARCHAR NOT NULL, start_date DATE NOT NULL, end_date DATE NOT NULL
);
INSERT INTO campaign_descriptions SELECT * FROM 'campaign_descriptions.parquet';

CREATE TABLE campaigns (
    campaign_id INTEGER REFERENCES campaign_descriptions (campaign_id),
    household_id INTEGER REFERENCES household (household_id),
    PRIMARY KEY (campaign_id, household_id)
);
INSERT INTO campaigns SELECT * FROM 'campaigns.parquet' WHERE household_id::INTEGER IN (FROM household);

CREATE TABLE coupon_redemptions (
    household_id INTEGER NOT NULL REFERENCES household (household_id), coupon_upc BIGINT NOT NULL,
    campaign_id INTEGER NOT NULL REFERENCES campaign_descriptions (campaign_id), redemption_date DATE NOT NULL
);
INSERT INTO coupon_redemptions
SELECT * FROM 'coupon_redemptions.parquet' WHERE household_id::INTEGER IN (FROM household);
