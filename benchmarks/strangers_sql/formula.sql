-- Formula 1 since 1950: results by (year, round, driver); f1db's own names of keys.
CREATE TABLE drivers (
    id VARCHAR PRIMARY KEY, firstName VARCHAR NOT NULL, lastName VARCHAR NOT NULL, gender VARCHAR NOT NULL,
    dateOfBirth DATE NOT NULL, dateOfDeath DATE, nationalityCountryId VARCHAR NOT NULL
);
INSERT INTO drivers FROM read_drivers;

CREATE TABLE constructors (id VARCHAR PRIMARY KEY, name VARCHAR NOT NULL, countryId VARCHAR NOT NULL);
INSERT INTO constructors FROM read_constructors;

CREATE TABLE circuits (
    id VARCHAR PRIMARY KEY, name VARCHAR NOT NULL, type VARCHAR NOT NULL, direction VARCHAR NOT NULL,
    countryId VARCHAR NOT NULL, latitude DOUBLE NOT NULL, longitude DOUBLE NOT NULL, length DOUBLE NOT NULL,
    turns INTEGER NOT NULL
);
INSERT INTO circuits FROM read_circuits;

CREATE TABLE races (
    year INTEGER, round INTEGER, date DATE NOT NULL, grandPrixId VARCHAR NOT NULL,
    circuitId VARCHAR NOT NULL REFERENCES circuits (id), laps INTEGER NOT NULL, distance DOUBLE NOT NULL,
    PRIMARY KEY (year, round)
);
INSERT INTO races FROM read_races;

CREATE TABLE race_results (
    year INTEGER, round INTEGER, driverId VARCHAR REFERENCES drivers (id), position VARCHAR NOT NULL,
    constructorId VARCHAR NOT NULL REFERENCES constructors (id), laps INTEGER, time VARCHAR, reasonRetired VARCHAR,
    points DOUBLE, gridPosition VARCHAR,
    PRIMARY KEY (year, round, driverId), FOREIGN KEY (year, round) REFERENCES races (year, round)
);
INSERT OR IGNORE INTO race_results FROM read_race_results;

CREATE TABLE qualifying_results (
    year INTEGER, round INTEGER, driverId VARCHAR REFERENCES drivers (id), position VARCHAR NOT NULL,
    constructorId VARCHAR NOT NULL REFERENCES constructors (id), time VARCHAR, q1 VARCHAR, q2 VARCHAR, q3 VARCHAR,
    PRIMARY KEY (year, round, driverId), FOREIGN KEY (year, round) REFERENCES races (year, round)
);
INSERT OR IGNORE INTO qualifying_results FROM read_qualifying_results;

CREATE TABLE pit_stops (
    year INTEGER, round INTEGER, driverId VARCHAR REFERENCES drivers (id), stop INTEGER, lap INTEGER NOT NULL,
    constructorId VARCHAR NOT NULL REFERENCES constructors (id), time VARCHAR,
    PRIMARY KEY (year, round, driverId, stop), FOREIGN KEY (year, round) REFERENCES races (year, round)
);
INSERT OR IGNORE INTO pit_stops FROM read_pit_stops;

CREATE TABLE driver_standings (
    year INTEGER, round INTEGER, driverId VARCHAR REFERENCES drivers (id), position INTEGER, points DOUBLE NOT NULL,
    PRIMARY KEY (year, round, driverId), FOREIGN KEY (year, round) REFERENCES races (year, round)
);
INSERT OR IGNORE INTO driver_standings
SELECT year, round, driverId, try_cast(position AS INTEGER), points FROM read_driver_standings;
