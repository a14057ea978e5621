// pg-transactional-outbox with its polling listener: larger batches and a shorter interval than its defaults, and without the
// protection against poisonous messages, as in its example.
import { DatabaseSetup, getDisabledLogger, initializePollingMessageListener } from 'pg-transactional-outbox';
import { payload, rows, run, url } from './peer.mjs';

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
const insert = (count) =>
  `insert into public.outbox (id, aggregate_type, aggregate_id, message_type, payload)
   select gen_random_uuid(), 'order', n::text, 'placed', ${payload} from generate_series(1, ${count}) n`;

await run({
  tables: ['public.outbox'],
  prepare: async (client) => {
    await client.query(DatabaseSetup.dropAndCreateTable(setup));
    await client.query(DatabaseSetup.createPollingFunction(setup));
    await client.query(DatabaseSetup.setupPollingIndexes(setup));
  },
  fill: insert(rows),
  add: insert(1),
  left: 'select count(*) as left from public.outbox where processed_at is null',
  start: async (handle) => {
    const [shutdown] = initializePollingMessageListener(
      {
        outboxOrInbox: 'outbox',
        dbListenerConfig: connection,
        settings: {
          dbSchema: 'public',
          dbTable: 'outbox',
          enableMaxAttemptsProtection: false,
          enablePoisonousMessageProtection: false,
          nextMessagesBatchSize: 100,
          nextMessagesFunctionName: 'next_outbox_messages',
          nextMessagesPollingIntervalInMs: 50,
        },
      },
      { handle: async () => handle() },
      getDisabledLogger(),
    );
    return shutdown;
  },
});
