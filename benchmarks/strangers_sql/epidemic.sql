-- Cases of an epidemic in South Korea, where patients went, and the weather; provinces and cities are names.
CREATE TABLE region (
    province VARCHAR, city VARCHAR, code INTEGER NOT NULL UNIQUE, latitude DOUBLE NOT NULL, longitude DOUBLE NOT NULL,
    elementary_school_count INTEGER NOT NULL, university_count INTEGER NOT NULL, academy_ratio DOUBLE NOT NULL,
    elderly_population_ratio DOUBLE NOT NULL, nursing_home_count INTEGER NOT NULL,
    PRIMARY KEY (province, city)
);
INSERT INTO region BY NAME
SELECT province, city, code, latitude, longitude, elementary_school_count, university_count, academy_ratio,
    elderly_population_ratio, nursing_home_count
FROM read_csv('Region.csv');

CREATE TABLE weather (
    province VARCHAR, date DATE, avg_temp DOUBLE, min_temp DOUBLE, max_temp DOUBLE, precipitation DOUBLE,
    max_wind_speed DOUBLE, most_wind_direction DOUBLE, avg_relative_humidity DOUBLE,
    PRIMARY KEY (province, date)
);
INSERT INTO weather SELECT * EXCLUDE (code) FROM read_csv('Weather.csv') WHERE date >= '2020-01-01';

CREATE TEMP TABLE read AS SELECT * FROM read_csv('PatientInfo.csv', all_varchar = true);
CREATE TABLE patient (
    patient_id BIGINT PRIMARY KEY, sex VARCHAR, birth_year DOUBLE, age VARCHAR, country VARCHAR NOT NULL,
    province VARCHAR NOT NULL, city VARCHAR, disease BOOLEAN, infection_case VARCHAR, infection_order DOUBLE,
    infected_by BIGINT, contact_number DOUBLE, symptom_onset_date DATE, confirmed_date DATE, released_date DATE,
    deceased_date DATE, state VARCHAR NOT NULL
);
INSERT INTO patient
SELECT patient_id, sex, try_cast(birth_year AS DOUBLE), age, country, province, city, disease, infection_case,
    infection_order, try_cast(infected_by AS BIGINT), try_cast(contact_number AS DOUBLE),
    try_cast(symptom_onset_date AS DATE), confirmed_date, released_date, deceased_date, state
FROM read;

CREATE TABLE patient_route (
    patient_id BIGINT NOT NULL REFERENCES patient (patient_id), date DATE NOT NULL, province VARCHAR NOT NULL,
    city VARCHAR NOT NULL, type VARCHAR NOT NULL, latitude DOUBLE NOT NULL, longitude DOUBLE NOT NULL,
    FOREIGN KEY (province, city) REFERENCES region (province, city),
    FOREIGN KEY (province, date) REFERENCES weather (province, date)
);
INSERT INTO patient_route
SELECT * EXCLUDE (global_num) FROM read_csv('PatientRoute.csv')
WHERE patient_id IN (SELECT patient_id FROM patient) AND (province, city) IN (SELECT (province, city) FROM region)
    AND (province, date) IN (SELECT (province, date) FROM weather);
