// graphile-worker, with batching as its page on performance recommends: a local queue, and completions in batches.
import { run as startWorkers, runMigrations } from 'graphile-worker';
import { payload, rows, run, url } from './peer.mjs';

const options = (concurrentJobs) => ({
  connectionString: url,
  noHandleSignals: true,
  logger: undefined,
  preset: {
    worker: {
      connectionString: url,
      concurrentJobs,
      maxPoolSize: 10,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  },
});

await run({
  tables: ['graphile_worker._private_jobs'],
  prepare: async () => runMigrations({ connectionString: url }),
  fill: `select count(graphile_worker.add_job('job', ${payload}::json)) from generate_series(1, ${rows}) n`,
  add: `select graphile_worker.add_job('job', ${payload}::json) from generate_series(1, 1) n`,
  left: 'select count(*) as left from graphile_worker._private_jobs',
  start: async (handle) => {
    const { Logger } = await import('graphile-worker');
    const runner = await startWorkers({
      ...options(24),
      logger: new Logger(() => () => {}),
      taskList: { job: async () => handle() },
    });
    return () => runner.stop();
  },
});
