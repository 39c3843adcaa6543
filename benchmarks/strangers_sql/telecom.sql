-- Customers of a telephone company (IBM's sample, by its five tables): names of columns have spaces, flags are text.
CREATE TEMP TABLE read AS SELECT * FROM read_csv('telecom_customer_churn.csv', all_varchar = true, encoding = 'latin-1');

CREATE TABLE population ("Zip Code" INTEGER PRIMARY KEY, Population INTEGER NOT NULL);
INSERT INTO population SELECT * FROM read_csv('telecom_zipcode_population.csv', encoding = 'latin-1');

CREATE TABLE demographics (
    "Customer ID" VARCHAR PRIMARY KEY, Gender VARCHAR NOT NULL, Age INTEGER NOT NULL, Married VARCHAR NOT NULL,
    "Number of Dependents" INTEGER NOT NULL
);
INSERT INTO demographics BY NAME SELECT "Customer ID", Gender, Age, Married, "Number of Dependents" FROM read;

CREATE TABLE location (
    "Customer ID" VARCHAR PRIMARY KEY REFERENCES demographics ("Customer ID"), City VARCHAR NOT NULL,
    "Zip Code" INTEGER NOT NULL REFERENCES population ("Zip Code"), Latitude DOUBLE NOT NULL, Longitude DOUBLE NOT NULL
);
INSERT INTO location BY NAME
SELECT "Customer ID", City, "Zip Code", Latitude, Longitude FROM read
WHERE "Zip Code"::INTEGER IN (SELECT "Zip Code" FROM population);

CREATE TABLE services (
    "Customer ID" VARCHAR PRIMARY KEY REFERENCES demographics ("Customer ID"), "Number of Referrals" INTEGER NOT NULL,
    "Tenure in Months" INTEGER NOT NULL, Offer VARCHAR NOT NULL, "Phone Service" VARCHAR NOT NULL,
    "Avg Monthly Long Distance Charges" DOUBLE, "Multiple Lines" VARCHAR, "Internet Service" VARCHAR NOT NULL,
    "Internet Type" VARCHAR, "Avg Monthly GB Download" DOUBLE, "Online Security" VARCHAR, "Online Backup" VARCHAR,
    "Device Protection Plan" VARCHAR, "Premium Tech Support" VARCHAR, "Streaming TV" VARCHAR,
    "Streaming Movies" VARCHAR, "Streaming Music" VARCHAR, "Unlimited Data" VARCHAR, Contract VARCHAR NOT NULL,
    "Paperless Billing" VARCHAR NOT NULL, "Payment Method" VARCHAR NOT NULL, "Monthly Charge" DOUBLE NOT NULL,
    "Total Charges" DOUBLE NOT NULL, "Total Refunds" DOUBLE NOT NULL, "Total Extra Data Charges" DOUBLE NOT NULL,
    "Total Long Distance Charges" DOUBLE NOT NULL, "Total Revenue" DOUBLE NOT NULL
);
INSERT INTO services BY NAME
SELECT * EXCLUDE (
    Gender, Age, Married, "Number of Dependents", City, "Zip Code", Latitude, Longitude, "Customer Status",
    "Churn Category", "Churn Reason"
) FROM read;

CREATE TABLE status (
    "Customer ID" VARCHAR PRIMARY KEY REFERENCES demographics ("Customer ID"), "Customer Status" VARCHAR NOT NULL,
    "Churn Category" VARCHAR, "Churn Reason" VARCHAR
);
INSERT INTO status BY NAME SELECT "Customer ID", "Customer Status", "Churn Category", "Churn Reason" FROM read;
