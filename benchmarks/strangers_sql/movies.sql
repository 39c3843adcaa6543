-- Ratings of movies by users who said their age, gender, occupation and postal code.
CREATE TABLE movies (
    movie_id INTEGER PRIMARY KEY, title VARCHAR NOT NULL, release_date DATE, video_release_date DATE, imdb_url VARCHAR
);
CREATE TEMP TABLE read AS
SELECT * FROM read_csv('u.item', delim = '|', header = false, encoding = 'latin-1', all_varchar = true, quote = '');
INSERT INTO movies
SELECT column00, column01, strptime(column02, '%d-%b-%Y'), strptime(column03, '%d-%b-%Y'), column04 FROM read;

CREATE TABLE genres (genre VARCHAR PRIMARY KEY, position INTEGER NOT NULL);
INSERT INTO genres SELECT column0, column1 FROM read_csv('u.genre', delim = '|', header = false);

CREATE TABLE movie_genres (
    movie_id INTEGER REFERENCES movies (movie_id), genre VARCHAR REFERENCES genres (genre), PRIMARY KEY (movie_id, genre)
);
INSERT INTO movie_genres
SELECT column00, genre
FROM (UNPIVOT read ON COLUMNS('column(0[5-9]|1[0-9]|2[0-3])') INTO NAME flag VALUE is_of) flags
JOIN genres ON position = flag[7:]::INTEGER - 5
WHERE is_of = '1' ORDER BY ALL;

CREATE TABLE users (
    user_id INTEGER PRIMARY KEY, age INTEGER NOT NULL, gender VARCHAR NOT NULL, occupation VARCHAR NOT NULL,
    zip_code VARCHAR NOT NULL
);
INSERT INTO users SELECT * FROM read_csv('u.user', delim = '|', header = false, all_varchar = true);

CREATE TABLE ratings (
    user_id INTEGER REFERENCES users (user_id), movie_id INTEGER REFERENCES movies (movie_id), rating INTEGER NOT NULL,
    rated_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, movie_id)
);
INSERT INTO ratings
SELECT * FROM read_csv('u.data', delim = '\t', header = false)
WHERE column0 IN (SELECT user_id FROM users) AND column1 IN (SELECT movie_id FROM movies);
