-- The application's queries: $1, .. are the values that it passes, weight counts calls, think is the pause after one.

-- name: sign in
-- weight: 200
SELECT id, full_name, settings FROM customer WHERE lower(email) = lower($1);

-- name: order page
-- weight: 120
-- think: 50 ms
BEGIN;
SELECT * FROM orders WHERE id = $1;
SELECT l.line, l.sku, p.name, l.quantity, l.amount FROM order_line l JOIN product p USING (sku) WHERE l.order_id = $1 ORDER BY l.line;
COMMIT;

-- name: orders of a customer
-- weight: 90
SELECT id, status, placed_at, total FROM orders WHERE customer_id = $1 ORDER BY placed_at DESC LIMIT $2;

-- name: reviews of a product
-- weight: 60
SELECT rating, title, written_at FROM review WHERE sku = $1 ORDER BY written_at DESC LIMIT $2;

-- name: place an order
-- weight: 15
BEGIN;
INSERT INTO orders (id, customer_id, billing_line, status, channel, placed_at, currency, goods, shipping, total)
VALUES ($1, $2, $3, 'placed', $4, now(), $5, $6, $7, $8);
INSERT INTO order_line (order_id, line, sku, quantity, unit_price, amount)
VALUES ($1, $2, $3, $4, $5, $6), ($7, $8, $9, $10, $11, $12);
COMMIT;

-- name: ship
-- weight: 12
UPDATE orders SET status = 'shipped', shipped_at = now() WHERE id = $1 AND delivered_at IS NULL;

-- name: to ship
-- weight: 10
SELECT o.id, o.placed_at, c.country FROM orders o JOIN customer c ON c.id = o.customer_id
WHERE o.status = 'paid' AND c.country = $1 ORDER BY o.placed_at;

-- name: revenue by month
SELECT date_trunc('month', placed_at) AS month, currency, sum(total) FROM orders
WHERE placed_at >= TIMESTAMP '2024-01-01' AND status <> 'cancelled' GROUP BY 1, 2 ORDER BY 1, 2;

-- name: best sellers
SELECT c.name, count(*), sum(l.amount) FROM order_line l
JOIN product p ON p.sku = l.sku JOIN category c ON c.id = p.category_id JOIN orders o ON o.id = l.order_id
WHERE o.placed_at BETWEEN $1 AND $2 GROUP BY c.name ORDER BY 3 DESC LIMIT 5;

-- name: unpaid and late
SELECT o.id, o.total FROM orders o LEFT JOIN payment p ON p.order_id = o.id
WHERE p.id IS NULL AND o.placed_at < $1 AND o.total > 500;
