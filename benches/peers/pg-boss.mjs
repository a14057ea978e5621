// pg-boss, with batches of jobs and several pollers at its shortest interval (half a second).
import PgBoss from 'pg-boss';
import { payload, rows, run, url } from './peer.mjs';

const boss = new PgBoss({ connectionString: url, max: 10, schedule: false, supervise: false });
boss.on('error', (error) => { console.error(error); process.exit(1); });

await run({
  tables: ['pgboss.job'],
  prepare: async () => {
    await boss.start();
    await boss.createQueue('jobs');
  },
  fill: `insert into pgboss.job (name, data) select 'jobs', ${payload} from generate_series(1, ${rows}) n`,
  add: `insert into pgboss.job (name, data) select 'jobs', ${payload} from generate_series(1, 1) n`,
  left: `select count(*) as left from pgboss.job where name = 'jobs' and state < 'completed'`,
  start: async (handle) => {
    for (let poller = 0; poller < 8; poller += 1) {
      await boss.work('jobs', { batchSize: 1000, pollingIntervalSeconds: 0.5 }, async (jobs) => {
        for (const _ of jobs) handle();
      });
    }
    return () => boss.stop({ graceful: false, timeout: 1000 });
  },
});
