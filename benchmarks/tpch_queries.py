"""TPC-H's queries 4, 5, 7, 9, 12, 14, 17 and 19 with the parameters of the specification's validation runs.

Written for this project with explicit joins. Query 19 ships by 'REG AIR', which the generator writes, and not by
'AIR REG', which it never does. Revenue is l_extendedprice * (1 - l_discount) throughout.
"""

QUERIES = {
    "Q4": """
SELECT o_orderpriority, COUNT(*) AS order_count
FROM orders
WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01'
  AND EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority""",
    "Q5": """
SELECT n_name, SUM(l_extendedprice * (1 - l_discount)) AS revenue
FROM customer
JOIN orders ON o_custkey = c_custkey
JOIN lineitem ON l_orderkey = o_orderkey
JOIN supplier ON s_suppkey = l_suppkey AND s_nationkey = c_nationkey
JOIN nation ON n_nationkey = s_nationkey
JOIN region ON r_regionkey = n_regionkey
WHERE r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
GROUP BY n_name ORDER BY revenue DESC""",
    "Q7": """
SELECT seller.n_name AS supp_nation, buyer.n_name AS cust_nation, EXTRACT(year FROM l_shipdate) AS l_year,
  SUM(l_extendedprice * (1 - l_discount)) AS revenue
FROM lineitem
JOIN supplier ON s_suppkey = l_suppkey
JOIN orders ON o_orderkey = l_orderkey
JOIN customer ON c_custkey = o_custkey
JOIN nation AS seller ON seller.n_nationkey = s_nationkey
JOIN nation AS buyer ON buyer.n_nationkey = c_nationkey
WHERE l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
  AND ((seller.n_name = 'FRANCE' AND buyer.n_name = 'GERMANY')
    OR (seller.n_name = 'GERMANY' AND buyer.n_name = 'FRANCE'))
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3""",
    "Q9": """
SELECT n_name AS nation, EXTRACT(year FROM o_orderdate) AS o_year,
  SUM(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity) AS profit
FROM lineitem
JOIN part ON p_partkey = l_partkey
JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey
JOIN supplier ON s_suppkey = l_suppkey
JOIN orders ON o_orderkey = l_orderkey
JOIN nation ON n_nationkey = s_nationkey
WHERE p_name LIKE '%green%'
GROUP BY 1, 2 ORDER BY 1, 2 DESC""",
    "Q12": """
SELECT l_shipmode,
  SUM(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS high_line_count,
  SUM(CASE WHEN o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS low_line_count
FROM orders
JOIN lineitem ON l_orderkey = o_orderkey
WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
  AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
GROUP BY l_shipmode ORDER BY l_shipmode""",
    "Q14": """
SELECT 100.0 * SUM(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
  / SUM(l_extendedprice * (1 - l_discount)) AS promo_revenue
FROM lineitem
JOIN part ON p_partkey = l_partkey
WHERE l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'""",
    "Q17": """
SELECT SUM(l_extendedprice) / 7.0 AS avg_yearly
FROM lineitem
JOIN part ON p_partkey = l_partkey
WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX'
  AND l_quantity < (SELECT 0.2 * AVG(other.l_quantity) FROM lineitem AS other WHERE other.l_partkey = p_partkey)""",
    "Q19": """
SELECT SUM(l_extendedprice * (1 - l_discount)) AS revenue
FROM lineitem
JOIN part ON p_partkey = l_partkey
WHERE l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON'
  AND ((p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
      AND l_quantity BETWEEN 1 AND 11 AND p_size BETWEEN 1 AND 5)
    OR (p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
      AND l_quantity BETWEEN 10 AND 20 AND p_size BETWEEN 1 AND 10)
    OR (p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
      AND l_quantity BETWEEN 20 AND 30 AND p_size BETWEEN 1 AND 15))""",
}
