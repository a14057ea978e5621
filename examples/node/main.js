// Commits an order and its event in one transaction, with pg.

import assert from "node:assert/strict";
import pg from "pg";

const TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/** Runs `work` in a transaction. Commits if it succeeds, rolls back if it throws. */
async function transaction(pool, work) {
  const client = await pool.connect();
  try {
    await client.query("begin");
    const result = await work(client);
    await client.query("commit");
    return result;
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
}

/** Enqueues OrderCreated in the client's transaction. */
async function enqueue(client, order, total) {
  const { rows } = await client.query(
    `select id, is_new from pillarbox.enqueue(
       namespace => 'shop', topic => 'orders', event_type => 'OrderCreated',
       aggregate_type => 'order', aggregate_id => $1, dedupe_key => $2, ordering_key => $3,
       payload => $4, headers => $5)`,
    [
      String(order),
      `order-${order}/created`,
      `order-${order}`,
      JSON.stringify({ order, total }),
      JSON.stringify({ traceparent: TRACEPARENT }),
    ],
  );
  return rows[0];
}

/** Enqueues all events with one statement, in order. */
async function enqueueMany(client, events) {
  // Passed as text, because pg turns a JavaScript array into a PostgreSQL array.
  const { rows } = await client.query("select id, is_new from pillarbox.enqueue_many($1) order by ord", [
    JSON.stringify(events),
  ]);
  return rows;
}

async function placeOrder(client, order, total) {
  await client.query("insert into orders (id, total) values ($1, $2)", [order, total]);
  return enqueue(client, order, total);
}

/** Counts the rows of this order. A producer sees no event; `scripts/examples` compares what is delivered. */
async function count(pool, order) {
  const { rows } = await pool.query("select count(*)::int as count from orders where id = $1", [order]);
  return rows[0].count;
}

async function main(pool) {
  const first = await transaction(pool, (client) => placeOrder(client, 1, "19.90"));
  assert.equal(first.is_new, true);
  assert.equal(await count(pool, 1), 1, "order 1 exists");
  console.log(`enqueued ${first.id} OrderCreated`);

  const change = transaction(pool, async (client) => {
    await placeOrder(client, 2, "5.00");
    throw new Error("the customer changed her mind");
  });
  await assert.rejects(change, /changed her mind/);
  assert.equal(await count(pool, 2), 0, "order 2 does not exist");
  console.log("rolled back: the customer changed her mind");

  const again = await transaction(pool, (client) => enqueue(client, 1, "19.90"));
  assert.deepEqual(again, { id: first.id, is_new: false }, "a second enqueue with the same dedupe key is not new");
  console.log(`already enqueued: ${again.id}`);

  const events = ["tea", "pot", "cup"].map((article) => ({
    namespace: "shop",
    topic: "stock",
    event_type: "StockReserved",
    ordering_key: `article-${article}`,
    payload: { order: 1, article },
  }));
  const reserved = await transaction(pool, (client) => enqueueMany(client, events));
  assert.deepEqual(reserved.map((event) => event.is_new), [true, true, true]);
  for (const { id } of reserved) console.log(`enqueued ${id} StockReserved`);
}

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
try {
  await main(pool);
} finally {
  await pool.end();
}
