-- Patients in the common data model of OHDSI (OMOP 5.3), attached as `source`; codes refer to concepts.
CREATE TABLE concept (
    concept_id INTEGER PRIMARY KEY, concept_name VARCHAR NOT NULL, domain_id VARCHAR NOT NULL,
    vocabulary_id VARCHAR NOT NULL, concept_class_id VARCHAR NOT NULL, standard_concept VARCHAR,
    concept_code VARCHAR NOT NULL, valid_start_date DATE NOT NULL, valid_end_date DATE NOT NULL
);
INSERT INTO concept BY NAME
SELECT concept_id, concept_name, domain_id, vocabulary_id, concept_class_id, standard_concept, concept_code,
    valid_start_date, valid_end_date
FROM source.concept;

CREATE TABLE person (
    person_id INTEGER PRIMARY KEY, gender_concept_id INTEGER NOT NULL, year_of_birth INTEGER NOT NULL,
    month_of_birth INTEGER, day_of_birth INTEGER, birth_datetime TIMESTAMP, race_concept_id INTEGER NOT NULL,
    ethnicity_concept_id INTEGER NOT NULL, person_source_value UUID, gender_source_value VARCHAR,
    race_source_value VARCHAR, ethnicity_source_value VARCHAR
);
INSERT INTO person BY NAME
SELECT * EXCLUDE (gender_source_concept_id, race_source_concept_id, ethnicity_source_concept_id, location_id, provider_id,
    care_site_id)
FROM source.person;

CREATE TABLE observation_period (
    observation_period_id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL REFERENCES person (person_id),
    observation_period_start_date DATE NOT NULL, observation_period_end_date DATE NOT NULL,
    period_type_concept_id INTEGER NOT NULL
);
INSERT INTO observation_period
SELECT * FROM source.observation_period WHERE person_id IN (SELECT person_id FROM person);

CREATE TABLE visit_occurrence (
    visit_occurrence_id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL REFERENCES person (person_id),
    visit_concept_id INTEGER NOT NULL REFERENCES concept (concept_id), visit_start_date DATE NOT NULL,
    visit_end_date DATE NOT NULL, visit_type_concept_id INTEGER NOT NULL, visit_source_value VARCHAR
);
INSERT INTO visit_occurrence BY NAME
SELECT visit_occurrence_id, person_id, visit_concept_id, visit_start_date, visit_end_date, visit_type_concept_id,
    visit_source_value
FROM source.visit_occurrence;

CREATE TABLE condition_occurrence (
    condition_occurrence_id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL REFERENCES person (person_id),
    condition_concept_id INTEGER NOT NULL REFERENCES concept (concept_id), condition_start_date DATE NOT NULL,
    condition_start_datetime TIMESTAMP, condition_end_date DATE, condition_end_datetime TIMESTAMP,
    condition_type_concept_id INTEGER NOT NULL, visit_occurrence_id INTEGER, condition_source_value VARCHAR,
    condition_source_concept_id INTEGER
);
INSERT INTO condition_occurrence BY NAME
SELECT condition_occurrence_id, person_id, condition_concept_id, condition_start_date, condition_start_datetime,
    condition_end_date, condition_end_datetime, condition_type_concept_id, visit_occurrence_id, condition_source_value,
    condition_source_concept_id
FROM source.condition_occurrence WHERE condition_concept_id IN (SELECT concept_id FROM concept);

CREATE TABLE drug_exposure (
    drug_exposure_id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL REFERENCES person (person_id),
    drug_concept_id INTEGER NOT NULL REFERENCES concept (concept_id), drug_exposure_start_date DATE NOT NULL,
    drug_exposure_end_date DATE NOT NULL, verbatim_end_date DATE, drug_type_concept_id INTEGER NOT NULL,
    refills INTEGER, quantity DOUBLE, days_supply INTEGER, visit_occurrence_id INTEGER, drug_source_value VARCHAR
);
INSERT OR IGNORE INTO drug_exposure BY NAME
SELECT drug_exposure_id, person_id, drug_concept_id, drug_exposure_start_date, drug_exposure_end_date, verbatim_end_date,
    drug_type_concept_id, refills, quantity, days_supply, visit_occurrence_id, drug_source_value
FROM source.drug_exposure WHERE drug_concept_id IN (SELECT concept_id FROM concept);

CREATE TABLE measurement (
    measurement_id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL REFERENCES person (person_id),
    measurement_concept_id INTEGER NOT NULL REFERENCES concept (concept_id), measurement_date DATE NOT NULL,
    measurement_type_concept_id INTEGER NOT NULL, visit_occurrence_id INTEGER, measurement_source_value VARCHAR
);
INSERT OR IGNORE INTO measurement BY NAME
SELECT measurement_id, person_id, measurement_concept_id, measurement_date, measurement_type_concept_id,
    visit_occurrence_id, measurement_source_value
FROM source.measurement WHERE measurement_concept_id IN (SELECT concept_id FROM concept);

CREATE TABLE procedure_occurrence (
    procedure_occurrence_id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL REFERENCES person (person_id),
    procedure_concept_id INTEGER NOT NULL REFERENCES concept (concept_id), procedure_date DATE NOT NULL,
    procedure_type_concept_id INTEGER NOT NULL, visit_occurrence_id INTEGER, procedure_source_value BIGINT
);
INSERT INTO procedure_occurrence BY NAME
SELECT procedure_occurrence_id, person_id, procedure_concept_id, procedure_date, procedure_type_concept_id,
    visit_occurrence_id, procedure_source_value
FROM source.procedure_occurrence WHERE procedure_concept_id IN (SELECT concept_id FROM concept);

CREATE TABLE observation (
    observation_id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL REFERENCES person (person_id),
    observation_concept_id INTEGER NOT NULL REFERENCES concept (concept_id), observation_date DATE NOT NULL,
    observation_type_concept_id INTEGER NOT NULL, visit_occurrence_id INTEGER, observation_source_value BIGINT
);
INSERT OR IGNORE INTO observation BY NAME
SELECT observation_id, person_id, observation_concept_id, observation_date, observation_type_concept_id,
    visit_occurrence_id, observation_source_value
FROM source.observation WHERE observation_concept_id IN (SELECT concept_id FROM concept);
