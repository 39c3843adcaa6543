-- Baseball: natural keys (player, year, stint), teams by year.
CREATE TABLE People (
    playerID VARCHAR PRIMARY KEY, birthYear INTEGER, birthMonth INTEGER, birthDay INTEGER, birthCity VARCHAR,
    birthCountry VARCHAR, birthState VARCHAR, deathYear INTEGER, deathMonth INTEGER, deathDay INTEGER,
    deathCountry VARCHAR, deathState VARCHAR, deathCity VARCHAR, nameFirst VARCHAR, nameLast VARCHAR NOT NULL,
    nameGiven VARCHAR, weight INTEGER, height INTEGER, bats VARCHAR, throws VARCHAR, debut DATE, bbrefID VARCHAR,
    finalGame DATE, retroID VARCHAR
);
INSERT INTO People SELECT * EXCLUDE (ID) FROM 'People.parquet';

CREATE TABLE Teams (
    yearID INTEGER, lgID VARCHAR, teamID VARCHAR, franchID VARCHAR NOT NULL, divID VARCHAR, Rank INTEGER NOT NULL,
    G INTEGER NOT NULL, W INTEGER NOT NULL, L INTEGER NOT NULL, R INTEGER, HR INTEGER, ERA DOUBLE,
    name VARCHAR NOT NULL, park VARCHAR, attendance INTEGER,
    PRIMARY KEY (yearID, teamID)
);
INSERT INTO Teams BY NAME
SELECT yearID, lgID, teamID, franchID, divID, Rank, G, W, L, R, HR, ERA, name, park, attendance FROM 'Teams.parquet';

CREATE TABLE Schools (schoolID VARCHAR PRIMARY KEY, name_full VARCHAR NOT NULL, city VARCHAR, state VARCHAR, country VARCHAR);
INSERT INTO Schools SELECT * FROM 'Schools.parquet';

CREATE TABLE Batting (
    playerID VARCHAR REFERENCES People (playerID), yearID INTEGER, stint INTEGER, teamID VARCHAR NOT NULL, lgID VARCHAR,
    G INTEGER NOT NULL, AB INTEGER NOT NULL, R INTEGER NOT NULL, H INTEGER NOT NULL, "2B" INTEGER NOT NULL,
    "3B" INTEGER NOT NULL, HR INTEGER NOT NULL, RBI INTEGER, SB INTEGER, CS INTEGER, BB INTEGER NOT NULL, SO INTEGER,
    IBB INTEGER, HBP INTEGER, SH INTEGER, SF INTEGER, GIDP INTEGER,
    PRIMARY KEY (playerID, yearID, stint), FOREIGN KEY (yearID, teamID) REFERENCES Teams (yearID, teamID)
);
INSERT INTO Batting
SELECT * FROM 'Batting.parquet' WHERE playerID IN (SELECT playerID FROM People) AND (yearID, teamID) IN (SELECT (yearID, teamID) FROM Teams);

CREATE TABLE Pitching (
    playerID VARCHAR REFERENCES People (playerID), yearID INTEGER, stint INTEGER, teamID VARCHAR NOT NULL, lgID VARCHAR,
    W INTEGER NOT NULL, L INTEGER NOT NULL, G INTEGER NOT NULL, GS INTEGER NOT NULL, CG INTEGER NOT NULL,
    SHO INTEGER NOT NULL, SV INTEGER NOT NULL, IPouts INTEGER NOT NULL, H INTEGER NOT NULL, ER INTEGER NOT NULL,
    HR INTEGER NOT NULL, BB INTEGER NOT NULL, SO INTEGER NOT NULL, BAOpp DOUBLE, ERA DOUBLE, BFP INTEGER,
    PRIMARY KEY (playerID, yearID, stint), FOREIGN KEY (yearID, teamID) REFERENCES Teams (yearID, teamID)
);
INSERT INTO Pitching
SELECT * EXCLUDE (IBB, WP, HBP, BK, GF, R, SH, SF, GIDP) FROM 'Pitching.parquet'
WHERE playerID IN (SELECT playerID FROM People) AND (yearID, teamID) IN (SELECT (yearID, teamID) FROM Teams);

CREATE TABLE Salaries (
    yearID INTEGER, teamID VARCHAR, lgID VARCHAR NOT NULL, playerID VARCHAR REFERENCES People (playerID), salary DOUBLE NOT NULL,
    PRIMARY KEY (yearID, teamID, playerID)
);
INSERT INTO Salaries SELECT * FROM 'Salaries.parquet' WHERE playerID IN (SELECT playerID FROM People);

CREATE TABLE BattingPost (
    yearID INTEGER, round VARCHAR, playerID VARCHAR REFERENCES People (playerID), teamID VARCHAR NOT NULL,
    lgID VARCHAR NOT NULL, G INTEGER NOT NULL, AB INTEGER NOT NULL, R INTEGER NOT NULL, H INTEGER NOT NULL,
    "2B" INTEGER NOT NULL, "3B" INTEGER NOT NULL, HR INTEGER NOT NULL, RBI INTEGER, SB INTEGER, CS INTEGER,
    BB INTEGER NOT NULL, SO INTEGER NOT NULL, IBB INTEGER, HBP INTEGER, SH INTEGER, SF INTEGER, GIDP INTEGER,
    PRIMARY KEY (yearID, round, playerID)
);
INSERT INTO BattingPost SELECT * FROM 'BattingPost.parquet' WHERE playerID IN (SELECT playerID FROM People);

CREATE TABLE AllstarFull (
    playerID VARCHAR REFERENCES People (playerID), yearID INTEGER, gameNum INTEGER, gameID VARCHAR, teamID VARCHAR,
    lgID VARCHAR NOT NULL, GP INTEGER NOT NULL, startingPos VARCHAR,
    PRIMARY KEY (playerID, yearID, gameNum)
);
INSERT OR IGNORE INTO AllstarFull SELECT * FROM 'AllstarFull.parquet' WHERE playerID IN (SELECT playerID FROM People);

CREATE TABLE CollegePlaying (
    playerID VARCHAR REFERENCES People (playerID), schoolID VARCHAR REFERENCES Schools (schoolID), yearID INTEGER,
    PRIMARY KEY (playerID, schoolID, yearID)
);
INSERT OR IGNORE INTO CollegePlaying
SELECT * FROM 'CollegePlaying.parquet' WHERE playerID IN (SELECT playerID FROM People) AND schoolID IN (SELECT schoolID FROM Schools);

CREATE TABLE HallOfFame (
    playerID VARCHAR REFERENCES People (playerID), yearID INTEGER, votedBy VARCHAR, ballots INTEGER, needed INTEGER,
    votes INTEGER, inducted VARCHAR, category VARCHAR NOT NULL,
    PRIMARY KEY (playerID, yearID, votedBy)
);
INSERT OR IGNORE INTO HallOfFame
SELECT * EXCLUDE (needed_note) FROM 'HallOfFame.parquet' WHERE playerID IN (SELECT playerID FROM People);

CREATE TABLE AwardsPlayers (
    playerID VARCHAR REFERENCES People (playerID), awardID VARCHAR, yearID INTEGER, lgID VARCHAR, tie VARCHAR, notes VARCHAR
);
INSERT INTO AwardsPlayers SELECT * FROM 'AwardsPlayers.parquet' WHERE playerID IN (SELECT playerID FROM People);
