-- Ten years of matches and one of weekly rankings; tournaments have the keys that the federation gives.
CREATE TABLE tournaments (
    tourney_id VARCHAR PRIMARY KEY, tourney_name VARCHAR NOT NULL, surface VARCHAR, draw_size INTEGER NOT NULL,
    tourney_level VARCHAR NOT NULL, tourney_date DATE NOT NULL
);
CREATE TEMP TABLE read AS SELECT * FROM read_csv('atp_matches_20[12]?.csv', union_by_name = true);
INSERT INTO tournaments
SELECT tourney_id, min(tourney_name), min(surface), min(draw_size), min(tourney_level),
    min(strptime(tourney_date::VARCHAR, '%Y%m%d'))
FROM read GROUP BY tourney_id ORDER BY tourney_id;

CREATE TEMP TABLE ranked AS SELECT * FROM read_csv('atp_rankings_current.csv');
CREATE TABLE players (
    player_id INTEGER PRIMARY KEY, name_first VARCHAR, name_last VARCHAR, hand VARCHAR, dob DATE, ioc VARCHAR,
    height DOUBLE, wikidata_id VARCHAR
);
INSERT INTO players
SELECT player_id, name_first, name_last, hand, try_strptime(dob::VARCHAR, '%Y%m%d'), ioc, height, wikidata_id
FROM read_csv('atp_players.csv')
WHERE player_id IN (SELECT winner_id FROM read UNION SELECT loser_id FROM read UNION SELECT player FROM ranked)
ORDER BY player_id;

CREATE TABLE matches (
    tourney_id VARCHAR REFERENCES tournaments (tourney_id), match_num INTEGER,
    winner_id INTEGER NOT NULL REFERENCES players (player_id), winner_seed DOUBLE, winner_entry VARCHAR, winner_age DOUBLE,
    loser_id INTEGER NOT NULL REFERENCES players (player_id), loser_seed DOUBLE, loser_entry VARCHAR, loser_age DOUBLE,
    score VARCHAR NOT NULL, best_of INTEGER NOT NULL, round VARCHAR NOT NULL, minutes DOUBLE,
    w_ace DOUBLE, w_df DOUBLE, w_svpt DOUBLE, w_1stIn DOUBLE, w_1stWon DOUBLE, w_2ndWon DOUBLE, w_SvGms DOUBLE,
    w_bpSaved DOUBLE, w_bpFaced DOUBLE,
    l_ace DOUBLE, l_df DOUBLE, l_svpt DOUBLE, l_1stIn DOUBLE, l_1stWon DOUBLE, l_2ndWon DOUBLE, l_SvGms DOUBLE,
    l_bpSaved DOUBLE, l_bpFaced DOUBLE,
    winner_rank DOUBLE, winner_rank_points DOUBLE, loser_rank DOUBLE, loser_rank_points DOUBLE,
    PRIMARY KEY (tourney_id, match_num)
);
INSERT OR IGNORE INTO matches BY NAME
SELECT * EXCLUDE (
    tourney_name, surface, draw_size, tourney_level, tourney_date, winner_name, winner_hand, winner_ht, winner_ioc,
    loser_name, loser_hand, loser_ht, loser_ioc
) FROM read
WHERE winner_id IN (SELECT player_id FROM players) AND loser_id IN (SELECT player_id FROM players);

CREATE TABLE rankings (
    ranking_date DATE, rank INTEGER NOT NULL, player INTEGER REFERENCES players (player_id), points INTEGER NOT NULL,
    PRIMARY KEY (ranking_date, player)
);
INSERT OR IGNORE INTO rankings
SELECT strptime(ranking_date::VARCHAR, '%Y%m%d'), rank, player, points FROM ranked
WHERE player IN (SELECT player_id FROM players);
