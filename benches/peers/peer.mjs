// What every peer does around its own queue: the same work, measured in the same way.
//
//   node NAME.mjs drain    fill the queue with ROWS jobs, print "ready", wait for a line, handle all of them, print the seconds
//   node NAME.mjs latency  start, print "ready", wait for a line, insert SAMPLES single jobs, print each in milliseconds
//
// DATABASE_URL names an empty database. A handler does nothing but count. The time of a drain ends when the database says that
// every job is done, as it does for Pillarbox. A latency begins when the COMMIT has returned and ends in the handler.
import { once } from 'node:events';
import { performance } from 'node:perf_hooks';
import { createInterface } from 'node:readline';
import pg from 'pg';

export const url = process.env.DATABASE_URL;
export const rows = Number(process.env.ROWS ?? 1000);
const samples = Number(process.env.SAMPLES ?? 10);
const idleFor = Number(process.env.IDLE_MS ?? 1200);

/** The SQL of the payload of job `n`: JSON of about 300 bytes, as the benchmark of Pillarbox has it. */
export const payload = `jsonb_build_object('order', n, 'customer', 'c-' || n, 'currency', 'EUR', 'note', repeat('x', 235))`;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Runs one peer.
 * @param peer.prepare  creates its tables
 * @param peer.fill     SQL that adds ROWS jobs
 * @param peer.add      SQL that adds one job
 * @param peer.left     SQL that counts unfinished jobs
 * @param peer.start    starts the workers with a handler; returns a function that stops them
 */
export async function run(peer) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await peer.prepare(client);
  const mode = process.argv[2];
  const lines = createInterface({ input: process.stdin });
  const go = once(lines, 'line');
  if (mode === 'drain') {
    await client.query(peer.fill);
    for (const table of peer.tables) await client.query(`vacuum (analyze) ${table}`);
    await client.query('checkpoint');
    console.log('ready');
    await go;
    await drain(client, peer);
  } else {
    console.log('ready');
    await go;
    await latency(client, peer);
  }
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
  const seconds = (performance.now() - began) / 1000;
  await stop();
  console.log(JSON.stringify({ seconds, handled }));
}

async function latency(client, peer) {
  let arrived;
  const stop = await peer.start(() => arrived?.(performance.now()));
  const times = [];
  for (let n = 0; n < samples; n += 1) {
    await sleep(idleFor + Math.random() * 500);
    const arrival = new Promise((resolve) => { arrived = resolve; });
    await client.query(peer.add);
    const committed = performance.now();
    times.push(Math.max(0, (await arrival) - committed));
  }
  await stop();
  console.log(JSON.stringify({ milliseconds: times }));
}
