-- Employees and their yearly reviews (a sample for people analytics): answers are codes of two lists.
CREATE TABLE EducationLevel (EducationLevelID INTEGER PRIMARY KEY, EducationLevel VARCHAR NOT NULL UNIQUE);
INSERT INTO EducationLevel SELECT * FROM read_csv('EducationLevel.csv');

CREATE TABLE RatingLevel (RatingID INTEGER PRIMARY KEY, RatingLevel VARCHAR NOT NULL UNIQUE);
INSERT INTO RatingLevel SELECT * FROM read_csv('RatingLevel.csv');

CREATE TABLE SatisfiedLevel (SatisfactionID INTEGER PRIMARY KEY, SatisfactionLevel VARCHAR NOT NULL UNIQUE);
INSERT INTO SatisfiedLevel SELECT * FROM read_csv('SatisfiedLevel.csv');

CREATE TABLE Employee (
    EmployeeID VARCHAR PRIMARY KEY, FirstName VARCHAR NOT NULL, LastName VARCHAR NOT NULL, Gender VARCHAR NOT NULL,
    Age INTEGER NOT NULL, BusinessTravel VARCHAR NOT NULL, Department VARCHAR NOT NULL,
    "DistanceFromHome (KM)" INTEGER NOT NULL, State VARCHAR NOT NULL, Ethnicity VARCHAR NOT NULL,
    Education INTEGER NOT NULL REFERENCES EducationLevel (EducationLevelID), EducationField VARCHAR NOT NULL,
    JobRole VARCHAR NOT NULL, MaritalStatus VARCHAR NOT NULL, Salary DOUBLE NOT NULL, StockOptionLevel INTEGER NOT NULL,
    OverTime VARCHAR NOT NULL, HireDate DATE NOT NULL, Attrition VARCHAR NOT NULL, YearsAtCompany INTEGER NOT NULL,
    YearsInMostRecentRole INTEGER NOT NULL, YearsSinceLastPromotion INTEGER NOT NULL,
    YearsWithCurrManager INTEGER NOT NULL
);
INSERT INTO Employee SELECT * FROM read_csv('Employee.csv', types = {'OverTime': 'VARCHAR', 'Attrition': 'VARCHAR'});

CREATE TABLE PerformanceRating (
    PerformanceID VARCHAR PRIMARY KEY, EmployeeID VARCHAR NOT NULL REFERENCES Employee (EmployeeID),
    ReviewDate DATE NOT NULL, EnvironmentSatisfaction INTEGER NOT NULL REFERENCES SatisfiedLevel (SatisfactionID),
    JobSatisfaction INTEGER NOT NULL REFERENCES SatisfiedLevel (SatisfactionID),
    RelationshipSatisfaction INTEGER NOT NULL REFERENCES SatisfiedLevel (SatisfactionID),
    TrainingOpportunitiesWithinYear INTEGER NOT NULL, TrainingOpportunitiesTaken INTEGER NOT NULL,
    WorkLifeBalance INTEGER NOT NULL REFERENCES SatisfiedLevel (SatisfactionID),
    SelfRating INTEGER NOT NULL REFERENCES RatingLevel (RatingID),
    ManagerRating INTEGER NOT NULL REFERENCES RatingLevel (RatingID)
);
INSERT INTO PerformanceRating
SELECT * FROM read_csv('PerformanceRating.csv') WHERE EmployeeID IN (SELECT EmployeeID FROM Employee);
