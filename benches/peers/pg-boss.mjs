// pg-boss with the options that its page on workers has for throughput: batches of jobs, and several pollers at the shortest interval
// (half a second). The page gives no values.
import PgBoss from 'pg-boss';
import { payload, run, url } from './peer.mjs';

const work = { batchSize: 1000, pollingIntervalSeconds: 0.5 };
const configuration = { max: 10, pollers: 8, ...work };

const boss = new PgBoss({ connectionString: url, max: configuration.max, schedule: false, supervise: false });
boss.on('error', (error) => { console.error(error); process.exit(1); });

await run({
  name: 'pg-boss',
  configuration,
  tables: ['pgboss.job'],
  prepare: async () => {
    await boss.start();
    await boss.createQueue('jobs');
  },
  insert: (from, to) =>
    `insert into pgboss.job (name, data) select 'jobs', ${payload} from generate_series(${from}, ${to}) n`,
  left: `select count(*) as left from pgboss.job where name = 'jobs' and state < 'completed'`,
  start: async (handle) => {
    for (let poller = 0; poller < configuration.pollers; poller += 1) {
      await boss.work('jobs', work, async (jobs) => {
        for (const { data } of jobs) handle(data.order);
      });
    }
    return () => boss.stop({ graceful: false, timeout: 1000 });
  },
});
