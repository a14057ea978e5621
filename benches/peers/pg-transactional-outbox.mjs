// pg-transactional-outbox with its polling listener. Its documentation recommends nothing for throughput. So it has larger batches
// and a shorter interval than its defaults, messages that may be handled in parallel, and no protection against poisonous messages,
// which costs transactions.
import { DatabaseSetup, getDisabledLogger, initializePollingMessageListener } from 'pg-transactional-outbox';
import { payload, run, url } from './peer.mjs';

const parsed = new URL(url);
const connection = {
  host: parsed.hostname,
  port: Number(parsed.port),
  user: decodeURIComponent(parsed.username),
  password: decodeURIComponent(parsed.password) || undefined,
  database: parsed.pathname.slice(1),
  max: 10,
};
const setup = {
  outboxOrInbox: 'outbox',
  database: connection.database,
  schema: 'public',
  table: 'outbox',
  listenerRole: connection.user,
  handlerRole: connection.user,
  nextMessagesName: 'next_outbox_messages',
};
const settings = {
  enableMaxAttemptsProtection: false,
  enablePoisonousMessageProtection: false,
  nextMessagesBatchSize: 100,
  nextMessagesPollingIntervalInMs: 50,
};

await run({
  name: 'pg-transactional-outbox',
  configuration: { max: connection.max, concurrency: 'parallel', ...settings },
  tables: ['public.outbox'],
  prepare: async (client) => {
    await client.query(DatabaseSetup.dropAndCreateTable(setup));
    await client.query(DatabaseSetup.createPollingFunction(setup));
    await client.query(DatabaseSetup.setupPollingIndexes(setup));
  },
  insert: (from, to) =>
    `insert into public.outbox (id, aggregate_type, aggregate_id, message_type, concurrency, payload)
     select gen_random_uuid(), 'order', n::text, 'placed', 'parallel', ${payload} from generate_series(${from}, ${to}) n`,
  left: 'select count(*) as left from public.outbox where processed_at is null',
  start: async (handle) => {
    const [shutdown] = initializePollingMessageListener(
      {
        outboxOrInbox: 'outbox',
        dbListenerConfig: connection,
        dbHandlerConfig: connection,
        settings: {
          dbSchema: 'public',
          dbTable: 'outbox',
          nextMessagesFunctionName: setup.nextMessagesName,
          ...settings,
        },
      },
      { handle: async ({ payload: { order } }) => handle(order) },
      getDisabledLogger(),
    );
    return shutdown;
  },
});
