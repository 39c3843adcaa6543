-- Courses of the Open University: registrations and marks; dates are days since a course began.
CREATE TABLE courses (
    code_module VARCHAR, code_presentation VARCHAR, module_presentation_length INTEGER NOT NULL,
    PRIMARY KEY (code_module, code_presentation)
);
INSERT INTO courses SELECT * FROM read_csv('courses.csv');

CREATE TABLE assessments (
    code_module VARCHAR NOT NULL, code_presentation VARCHAR NOT NULL, id_assessment INTEGER PRIMARY KEY,
    assessment_type VARCHAR NOT NULL, date INTEGER, weight DOUBLE NOT NULL,
    FOREIGN KEY (code_module, code_presentation) REFERENCES courses (code_module, code_presentation)
);
INSERT INTO assessments SELECT * FROM read_csv('assessments.csv', nullstr = ['', '?']);

CREATE TEMP TABLE read AS SELECT * FROM read_csv('studentInfo.csv', nullstr = ['', '?']);
CREATE TABLE student (
    id_student INTEGER PRIMARY KEY, gender VARCHAR NOT NULL, region VARCHAR NOT NULL, highest_education VARCHAR NOT NULL,
    imd_band VARCHAR, age_band VARCHAR NOT NULL, disability VARCHAR NOT NULL
);
INSERT INTO student
SELECT id_student, min(gender), min(region), min(highest_education), min(imd_band), min(age_band), min(disability)
FROM read GROUP BY id_student ORDER BY id_student;

CREATE TABLE registration (
    code_module VARCHAR, code_presentation VARCHAR, id_student INTEGER REFERENCES student (id_student),
    num_of_prev_attempts INTEGER NOT NULL, studied_credits INTEGER NOT NULL, final_result VARCHAR NOT NULL,
    PRIMARY KEY (code_module, code_presentation, id_student),
    FOREIGN KEY (code_module, code_presentation) REFERENCES courses (code_module, code_presentation)
);
INSERT INTO registration BY NAME
SELECT code_module, code_presentation, id_student, num_of_prev_attempts, studied_credits, final_result FROM read;

CREATE TABLE student_assessment (
    id_assessment INTEGER REFERENCES assessments (id_assessment), id_student INTEGER REFERENCES student (id_student),
    date_submitted INTEGER NOT NULL, is_banked BOOLEAN NOT NULL, score DOUBLE,
    PRIMARY KEY (id_assessment, id_student)
);
INSERT INTO student_assessment
SELECT id_assessment, id_student, date_submitted, is_banked::INTEGER::BOOLEAN, score
FROM read_csv('studentAssessment.csv', nullstr = ['', '?']);
