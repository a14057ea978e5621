// graphile-worker with the configuration of its page on performance: https://worker.graphile.org/docs/performance
import { Logger, run as startWorkers, runMigrations } from 'graphile-worker';
import { payload, run, url } from './peer.mjs';

const configuration = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

await run({
  name: 'graphile-worker',
  configuration,
  tables: ['graphile_worker._private_jobs'],
  prepare: async () => runMigrations({ connectionString: url }),
  // In batches: one call per job takes ten times as long.
  insert: (from, to) =>
    `select count(*) from generate_series(${from}, ${to}, 10000) first, lateral graphile_worker.add_jobs(array(
       select row('job', ${payload}::json, null, null, null, null, null, null)::graphile_worker.job_spec
       from generate_series(first, least(first + 9999, ${to})) n))`,
  left: 'select count(*) as left from graphile_worker._private_jobs',
  start: async (handle) => {
    const runner = await startWorkers({
      noHandleSignals: true,
      logger: new Logger(() => () => {}),
      taskList: { job: async ({ order }) => handle(order) },
      preset: { worker: { connectionString: url, ...configuration } },
    });
    return () => runner.stop();
  },
});
