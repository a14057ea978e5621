// What every peer does around its own queue: the same work, measured in the same way.
//
//   node NAME.mjs drain    fill the queue with ROWS jobs, say ready, wait for a line, handle all of them, print the seconds
//   node NAME.mjs latency  start, say ready, wait for a line, insert RATE single jobs per second for SECONDS, print the
//                          milliseconds of each
//
// A peer says ready with its version and configuration. DATABASE_URL names an empty database. A handler does nothing but note the
// number of its job. The time of a drain ends when the database says that every job is done, as it does for Pillarbox. A latency
// begins when the COMMIT has returned and ends in the handler. Each insert has a random place in its interval, so that it does not
// keep step with a poller.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { createInterface } from 'node:readline';
import pg from 'pg';

export const url = process.env.DATABASE_URL;
const rows = Number(process.env.ROWS ?? 1000);
const rate = Number(process.env.RATE ?? 1);
const seconds = Number(process.env.SECONDS ?? 10);

/** The SQL of the payload of job `n`: JSON of about 300 bytes, as the benchmark of Pillarbox has it. */
export const payload = `jsonb_build_object('order', n, 'customer', 'c-' || n, 'currency', 'EUR', 'note', repeat('x', 235))`;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Runs one peer.
 * @param peer.name           its package
 * @param peer.configuration  what it is configured with, to be printed
 * @param peer.tables         the tables that a fill writes
 * @param peer.prepare        creates its tables
 * @param peer.insert         returns SQL that adds the jobs with the numbers from..to
 * @param peer.left           SQL that counts unfinished jobs
 * @param peer.start          starts the workers with a handler for the number of a job; returns a function that stops them
 */
export async function run(peer) {
  const { version } = JSON.parse(readFileSync(`node_modules/${peer.name}/package.json`, 'utf8'));
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await peer.prepare(client);
  const mode = process.argv[2];
  const lines = createInterface({ input: process.stdin });
  const go = once(lines, 'line');
  if (mode === 'drain') {
    await client.query(peer.insert(1, rows));
    for (const table of peer.tables) await client.query(`vacuum (analyze) ${table}`);
    await client.query('checkpoint');
  }
  console.log(JSON.stringify({ ready: true, version, configuration: peer.configuration }));
  await go;
  await (mode === 'drain' ? drain : latency)(client, peer);
  lines.close();
  await client.end();
  process.exit(0);
}

async function drain(client, peer) {
  let handled = 0;
  const began = performance.now();
  const stop = await peer.start(() => { handled += 1; });
  while (handled < rows) await sleep(5);
  while (Number((await client.query(peer.left)).rows[0].left) > 0) await sleep(5);
  const took = (performance.now() - began) / 1000;
  await stop();
  console.log(JSON.stringify({ seconds: took, handled }));
}

async function latency(client, peer) {
  const arrived = new Map();
  const stop = await peer.start((n) => { if (!arrived.has(n)) arrived.set(n, performance.now()); });
  await sleep(1000); // its workers have started
  const committed = [];
  const began = performance.now();
  for (let n = 0; n < rate * seconds; n += 1) {
    await sleep(Math.max(0, began + ((n + Math.random()) * 1000) / rate - performance.now()));
    await client.query(peer.insert(n, n));
    committed.push(performance.now());
  }
  while (arrived.size < committed.length) await sleep(5);
  await stop();
  console.log(JSON.stringify({ milliseconds: committed.map((at, n) => Math.max(0, arrived.get(n) - at)) }));
}
