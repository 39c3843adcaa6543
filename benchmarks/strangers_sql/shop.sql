-- A shop for bicycles (the AdventureWorks sample): orders of customers, with numbered lines; income is text.
CREATE TABLE categories (CategoryKey INTEGER PRIMARY KEY, CategoryName VARCHAR NOT NULL UNIQUE);
INSERT INTO categories SELECT * FROM read_csv('AdventureWorks_Product_Categories.csv');

CREATE TABLE subcategories (
    SubcategoryKey INTEGER PRIMARY KEY, SubcategoryName VARCHAR NOT NULL,
    CategoryKey INTEGER NOT NULL REFERENCES categories (CategoryKey)
);
INSERT INTO subcategories SELECT * FROM read_csv('AdventureWorks_Product_Subcategories.csv');

CREATE TABLE products (
    ProductKey INTEGER PRIMARY KEY, SubcategoryKey INTEGER NOT NULL REFERENCES subcategories (SubcategoryKey),
    ProductSKU VARCHAR NOT NULL UNIQUE, ProductName VARCHAR NOT NULL, ModelName VARCHAR NOT NULL,
    ProductDescription VARCHAR, ProductColor VARCHAR, ProductSize VARCHAR, ProductStyle VARCHAR, ProductCost DOUBLE NOT NULL,
    ProductPrice DOUBLE NOT NULL
);
INSERT INTO products SELECT * FROM read_csv('AdventureWorks_Products.csv');

CREATE TABLE territories (
    TerritoryKey INTEGER PRIMARY KEY, Region VARCHAR NOT NULL, Country VARCHAR NOT NULL, Continent VARCHAR NOT NULL
);
INSERT INTO territories SELECT * FROM read_csv('AdventureWorks_Territories.csv');

CREATE TABLE customers (
    CustomerKey INTEGER PRIMARY KEY, Prefix VARCHAR, FirstName VARCHAR NOT NULL, LastName VARCHAR NOT NULL,
    BirthDate DATE NOT NULL, MaritalStatus VARCHAR NOT NULL, Gender VARCHAR, EmailAddress VARCHAR NOT NULL UNIQUE,
    AnnualIncome VARCHAR NOT NULL, TotalChildren INTEGER NOT NULL, EducationLevel VARCHAR NOT NULL,
    Occupation VARCHAR NOT NULL, HomeOwner VARCHAR NOT NULL
);
CREATE TEMP TABLE people AS
SELECT * FROM read_csv('AdventureWorks_Customers.csv', encoding = 'latin-1', all_varchar = true, nullstr = ['', 'NA']);
INSERT INTO customers SELECT * REPLACE (strptime(BirthDate, '%m/%d/%Y') AS BirthDate) FROM people;

CREATE TEMP TABLE sold AS
SELECT * REPLACE (
    strptime(OrderDate, '%m/%d/%Y')::DATE AS OrderDate, strptime(StockDate, '%m/%d/%Y')::DATE AS StockDate
)
FROM (SELECT * FROM read_csv('AdventureWorks_Sales_201?.csv', all_varchar = true));
CREATE TABLE orders (
    OrderNumber VARCHAR PRIMARY KEY, OrderDate DATE NOT NULL,
    CustomerKey INTEGER NOT NULL REFERENCES customers (CustomerKey),
    TerritoryKey INTEGER NOT NULL REFERENCES territories (TerritoryKey)
);
INSERT INTO orders
SELECT OrderNumber, min(OrderDate), min(CustomerKey::INTEGER), min(TerritoryKey::INTEGER) FROM sold
WHERE CustomerKey::INTEGER IN (SELECT CustomerKey FROM customers) GROUP BY OrderNumber ORDER BY OrderNumber;

CREATE TABLE order_lines (
    OrderNumber VARCHAR REFERENCES orders (OrderNumber), OrderLineItem INTEGER,
    ProductKey INTEGER NOT NULL REFERENCES products (ProductKey), StockDate DATE NOT NULL, OrderQuantity INTEGER NOT NULL,
    UnitPriceSold DECIMAL(10, 4) NOT NULL,
    PRIMARY KEY (OrderNumber, OrderLineItem)
);
INSERT INTO order_lines
SELECT OrderNumber, OrderLineItem, ProductKey, StockDate, OrderQuantity, UnitPriceSold FROM sold
WHERE OrderNumber IN (SELECT OrderNumber FROM orders);
