-- Reports of use of force by police officers in Chicago since 2012.
CREATE TABLE officers (
    officer_id INTEGER PRIMARY KEY, first_name VARCHAR NOT NULL, last_name VARCHAR NOT NULL, suffix_name VARCHAR,
    appointed_date DATE NOT NULL, gender VARCHAR NOT NULL, race VARCHAR NOT NULL, current_star DOUBLE
);
INSERT INTO officers
SELECT "TRR-officers_2004-2016_2016-09_ID", first_name, last_name, suffix_name, appointed_date, gender, race, current_star
FROM read_csv('TRR-officers_2004-2016_2016-09_profiles.csv.gz');

CREATE TABLE reports (
    trr_id INTEGER PRIMARY KEY, officer_id INTEGER NOT NULL REFERENCES officers (officer_id), rd_no VARCHAR NOT NULL,
    beat INTEGER NOT NULL, block VARCHAR NOT NULL, direction VARCHAR, street VARCHAR NOT NULL, location VARCHAR NOT NULL,
    location_recode VARCHAR NOT NULL, trr_date DATE NOT NULL, trr_time TIME NOT NULL, indoor_or_outdoor VARCHAR,
    lighting_condition VARCHAR, weather_condition VARCHAR, injured BOOLEAN NOT NULL, unit INTEGER NOT NULL, rank VARCHAR,
    in_uniform BOOLEAN NOT NULL, unit_detail DOUBLE, duty_status BOOLEAN NOT NULL, assigned_beat VARCHAR
);
INSERT INTO reports BY NAME
SELECT m.trr_id, "TRR-officers_2004-2016_2016-09_ID" officer_id, rd_no, beat, block, direction, street, location,
    location_recode, trr_date, trr_time, indoor_or_outdoor, lighting_condition, weather_condition, injured, unit, rank,
    in_uniform, unit_detail, duty_status, assigned_beat
FROM read_csv('TRR-main_2004-2016_2016-09.csv.gz') m
JOIN read_csv('TRR-officers_2004-2016_2016-09.csv.gz') o USING (trr_id) WHERE trr_date >= '2012-01-01' ORDER BY trr_id;

CREATE TABLE subjects (
    trr_id INTEGER PRIMARY KEY REFERENCES reports (trr_id), gender VARCHAR, race VARCHAR, age DOUBLE, birth_year DOUBLE,
    armed BOOLEAN, injured BOOLEAN, alleged_injury BOOLEAN, subject_no DOUBLE
);
INSERT INTO subjects
SELECT trr_id, gender, race, age, birth_year, armed, injured, alleged_injury, subject_no
FROM read_csv('TRR-subjects_2004-2016_2016-09.csv.gz') WHERE trr_id IN (SELECT trr_id FROM reports);

CREATE TABLE subject_weapons (
    trr_id INTEGER NOT NULL REFERENCES reports (trr_id), weapon_type VARCHAR NOT NULL, firearm_caliber VARCHAR,
    weapon_description VARCHAR
);
INSERT INTO subject_weapons
SELECT * FROM read_csv('TRR-subject-weapons_2004-2016_2016-09.csv.gz') WHERE trr_id IN (SELECT trr_id FROM reports);

CREATE TABLE actions (
    trr_id INTEGER NOT NULL REFERENCES reports (trr_id), person VARCHAR, resistance_type VARCHAR, action VARCHAR,
    other_description VARCHAR, force_type VARCHAR, action_sub_category DOUBLE, action_category DOUBLE,
    resistance_level VARCHAR
);
INSERT INTO actions
SELECT * EXCLUDE (member_action)
FROM read_csv('TRR-actions-responses_2004-2016_2016-09_p046360.csv.gz') WHERE trr_id IN (SELECT trr_id FROM reports);

CREATE TABLE statuses (
    row_id INTEGER PRIMARY KEY, trr_id INTEGER NOT NULL REFERENCES reports (trr_id), rank VARCHAR, star DOUBLE,
    status VARCHAR NOT NULL, status_date DATE NOT NULL, status_time TIME NOT NULL, age INTEGER NOT NULL
);
INSERT INTO statuses
SELECT row_id, trr_id, rank, star, status, status_date, status_time, age
FROM read_csv('TRR-statuses_2004-2016_2016-09.csv.gz') WHERE trr_id IN (SELECT trr_id FROM reports);

CREATE TABLE discharges (
    trr_id INTEGER NOT NULL REFERENCES reports (trr_id), weapon_type VARCHAR NOT NULL, firearm_make VARCHAR,
    total_number_of_shots DOUBLE, discharge_distance VARCHAR, object_struck_of_discharge VARCHAR,
    discharge_position VARCHAR, sight_used BOOLEAN
);
INSERT INTO discharges
SELECT trr_id, weapon_type, firearm_make, total_number_of_shots, discharge_distance, object_struck_of_discharge,
    discharge_position, sight_used
FROM read_csv('TRR-weapon-discharges_2004-2016_2016-09.csv.gz') WHERE trr_id IN (SELECT trr_id FROM reports);
