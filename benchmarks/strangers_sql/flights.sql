-- Flights from New York in the first quarter of 2013, their planes, and the weather by the hour.
CREATE TABLE airlines (carrier VARCHAR PRIMARY KEY, name VARCHAR NOT NULL);
INSERT INTO airlines SELECT * FROM read_csv('data/airlines.csv');

CREATE TABLE airports (
    faa VARCHAR PRIMARY KEY, name VARCHAR NOT NULL, lat DOUBLE NOT NULL, lon DOUBLE NOT NULL, alt INTEGER NOT NULL,
    tz INTEGER NOT NULL, dst VARCHAR NOT NULL, tzone VARCHAR
);
INSERT INTO airports SELECT * FROM read_csv('data/airports.csv', nullstr = 'NA');

CREATE TABLE weather (
    origin VARCHAR REFERENCES airports (faa), year INTEGER NOT NULL, month INTEGER NOT NULL, day INTEGER NOT NULL,
    hour INTEGER NOT NULL, temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir DOUBLE, wind_speed DOUBLE, wind_gust DOUBLE,
    precip DOUBLE NOT NULL, pressure DOUBLE, visib DOUBLE NOT NULL, time_hour TIMESTAMP,
    PRIMARY KEY (origin, time_hour)
);
INSERT INTO weather SELECT * FROM read_csv('data/weather.csv', nullstr = 'NA');

CREATE TABLE planes (
    tailnum VARCHAR PRIMARY KEY, year INTEGER, type VARCHAR NOT NULL, manufacturer VARCHAR NOT NULL,
    model VARCHAR NOT NULL, engines INTEGER NOT NULL, seats INTEGER NOT NULL, speed INTEGER, engine VARCHAR NOT NULL
);
INSERT INTO planes SELECT * FROM read_csv('data/planes.csv', nullstr = 'NA');

CREATE TABLE flights (
    year INTEGER, month INTEGER, day INTEGER, dep_time INTEGER, sched_dep_time INTEGER NOT NULL, dep_delay DOUBLE,
    arr_time INTEGER, sched_arr_time INTEGER NOT NULL, arr_delay DOUBLE, carrier VARCHAR REFERENCES airlines (carrier),
    flight INTEGER, tailnum VARCHAR NOT NULL REFERENCES planes (tailnum), origin VARCHAR, dest VARCHAR NOT NULL,
    air_time DOUBLE, distance DOUBLE NOT NULL, hour INTEGER NOT NULL, minute INTEGER NOT NULL, time_hour TIMESTAMP NOT NULL,
    PRIMARY KEY (year, month, day, carrier, flight, origin),
    FOREIGN KEY (origin, time_hour) REFERENCES weather (origin, time_hour), FOREIGN KEY (dest) REFERENCES airports (faa)
);
INSERT INTO flights
SELECT * FROM flown
WHERE month <= 3 AND tailnum IN (SELECT tailnum FROM planes) AND dest IN (SELECT faa FROM airports)
    AND (origin, time_hour::TIMESTAMP) IN (SELECT (origin, time_hour) FROM weather);
