-- World cups: goals, bookings and substitutions of players who are in a team's squad at a tournament.
CREATE TABLE tournaments (
    tournament_id VARCHAR PRIMARY KEY, tournament_name VARCHAR NOT NULL, year INTEGER NOT NULL UNIQUE,
    start_date DATE NOT NULL, end_date DATE NOT NULL, host_country VARCHAR NOT NULL, winner VARCHAR NOT NULL,
    count_teams INTEGER NOT NULL
);
INSERT INTO tournaments BY NAME
SELECT tournament_id, tournament_name, year, start_date, end_date, host_country, winner, count_teams
FROM read_csv('tournaments.csv');

CREATE TABLE teams (
    team_id VARCHAR PRIMARY KEY, team_name VARCHAR NOT NULL, team_code VARCHAR NOT NULL, mens_team BOOLEAN NOT NULL,
    womens_team BOOLEAN NOT NULL, region_name VARCHAR NOT NULL, confederation_code VARCHAR NOT NULL
);
INSERT INTO teams
SELECT team_id, team_name, team_code, mens_team, womens_team, region_name, confederation_code FROM read_csv('teams.csv');

CREATE TABLE stadiums (
    stadium_id VARCHAR PRIMARY KEY, stadium_name VARCHAR NOT NULL, city_name VARCHAR NOT NULL,
    country_name VARCHAR NOT NULL, stadium_capacity INTEGER NOT NULL
);
INSERT INTO stadiums
SELECT stadium_id, stadium_name, city_name, country_name, stadium_capacity FROM read_csv('stadiums.csv');

CREATE TABLE matches (
    match_id VARCHAR PRIMARY KEY, tournament_id VARCHAR NOT NULL REFERENCES tournaments (tournament_id),
    stage_name VARCHAR NOT NULL, group_name VARCHAR NOT NULL, match_date DATE NOT NULL, match_time TIME NOT NULL,
    stadium_id VARCHAR NOT NULL REFERENCES stadiums (stadium_id),
    home_team_id VARCHAR NOT NULL REFERENCES teams (team_id), away_team_id VARCHAR NOT NULL REFERENCES teams (team_id),
    home_team_score INTEGER NOT NULL, away_team_score INTEGER NOT NULL, extra_time BOOLEAN NOT NULL,
    penalty_shootout BOOLEAN NOT NULL, result VARCHAR NOT NULL
);
INSERT INTO matches
SELECT match_id, tournament_id, stage_name, group_name, match_date, match_time, stadium_id, home_team_id, away_team_id,
    home_team_score, away_team_score, extra_time, penalty_shootout, result
FROM read_csv('matches.csv');

CREATE TABLE awards (award_id VARCHAR PRIMARY KEY, award_name VARCHAR NOT NULL, year_introduced INTEGER NOT NULL);
INSERT INTO awards SELECT award_id, award_name, year_introduced FROM read_csv('awards.csv');

CREATE TABLE players (
    player_id VARCHAR PRIMARY KEY, family_name VARCHAR NOT NULL, given_name VARCHAR, birth_date DATE,
    female BOOLEAN NOT NULL, goal_keeper BOOLEAN NOT NULL, defender BOOLEAN NOT NULL, midfielder BOOLEAN NOT NULL,
    forward BOOLEAN NOT NULL, count_tournaments INTEGER NOT NULL
);
INSERT INTO players
SELECT player_id, family_name, nullif(given_name, 'not applicable'), try_cast(birth_date AS DATE), female, goal_keeper,
    defender, midfielder, forward, count_tournaments
FROM read_csv('players.csv');

CREATE TABLE squads (
    tournament_id VARCHAR REFERENCES tournaments (tournament_id), team_id VARCHAR REFERENCES teams (team_id),
    player_id VARCHAR REFERENCES players (player_id), shirt_number INTEGER NOT NULL, position_name VARCHAR NOT NULL,
    position_code VARCHAR NOT NULL,
    PRIMARY KEY (tournament_id, team_id, player_id)
);
INSERT OR IGNORE INTO squads
SELECT tournament_id, team_id, player_id, shirt_number, position_name, position_code FROM read_csv('squads.csv');

CREATE TABLE goals (
    goal_id VARCHAR PRIMARY KEY, tournament_id VARCHAR NOT NULL, match_id VARCHAR NOT NULL REFERENCES matches (match_id),
    team_id VARCHAR NOT NULL REFERENCES teams (team_id), home_team BOOLEAN NOT NULL, player_id VARCHAR NOT NULL,
    player_team_id VARCHAR NOT NULL, minute_label VARCHAR NOT NULL, minute_regulation INTEGER NOT NULL,
    minute_stoppage INTEGER NOT NULL, match_period VARCHAR NOT NULL, own_goal BOOLEAN NOT NULL, penalty BOOLEAN NOT NULL,
    FOREIGN KEY (tournament_id, player_team_id, player_id) REFERENCES squads (tournament_id, team_id, player_id)
);
INSERT INTO goals BY NAME
SELECT goal_id, tournament_id, match_id, team_id, home_team, player_id, player_team_id, minute_label, minute_regulation,
    minute_stoppage, match_period, own_goal, penalty
FROM read_csv('goals.csv');

CREATE TABLE bookings (
    booking_id VARCHAR PRIMARY KEY, tournament_id VARCHAR NOT NULL,
    match_id VARCHAR NOT NULL REFERENCES matches (match_id), team_id VARCHAR NOT NULL, home_team BOOLEAN NOT NULL,
    player_id VARCHAR NOT NULL, minute_label VARCHAR NOT NULL, minute_regulation INTEGER NOT NULL,
    minute_stoppage INTEGER NOT NULL, match_period VARCHAR NOT NULL, yellow_card BOOLEAN NOT NULL,
    red_card BOOLEAN NOT NULL, second_yellow_card BOOLEAN NOT NULL, sending_off BOOLEAN NOT NULL,
    FOREIGN KEY (tournament_id, team_id, player_id) REFERENCES squads (tournament_id, team_id, player_id)
);
INSERT INTO bookings BY NAME
SELECT booking_id, tournament_id, match_id, team_id, home_team, player_id, minute_label, minute_regulation,
    minute_stoppage, match_period, yellow_card, red_card, second_yellow_card, sending_off
FROM read_csv('bookings.csv');

CREATE TABLE substitutions (
    substitution_id VARCHAR PRIMARY KEY, tournament_id VARCHAR NOT NULL,
    match_id VARCHAR NOT NULL REFERENCES matches (match_id), team_id VARCHAR NOT NULL, home_team BOOLEAN NOT NULL,
    player_id VARCHAR NOT NULL, minute_label VARCHAR NOT NULL, minute_regulation INTEGER NOT NULL,
    minute_stoppage INTEGER NOT NULL, match_period VARCHAR NOT NULL, going_off BOOLEAN NOT NULL,
    coming_on BOOLEAN NOT NULL,
    FOREIGN KEY (tournament_id, team_id, player_id) REFERENCES squads (tournament_id, team_id, player_id)
);
INSERT INTO substitutions BY NAME
SELECT substitution_id, tournament_id, match_id, team_id, home_team, player_id, minute_label, minute_regulation,
    minute_stoppage, match_period, going_off, coming_on
FROM read_csv('substitutions.csv');

CREATE TABLE award_winners (
    tournament_id VARCHAR, award_id VARCHAR REFERENCES awards (award_id), team_id VARCHAR NOT NULL, player_id VARCHAR,
    shared BOOLEAN NOT NULL,
    PRIMARY KEY (tournament_id, award_id, player_id),
    FOREIGN KEY (tournament_id, team_id, player_id) REFERENCES squads (tournament_id, team_id, player_id)
);
INSERT INTO award_winners
SELECT tournament_id, award_id, team_id, player_id, shared FROM read_csv('award_winners.csv');
