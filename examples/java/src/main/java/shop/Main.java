package shop;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/** Commits an order and its event in one transaction, with JDBC. */
public final class Main {
    private static final String TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    private static final String ENQUEUE = """
            select id, is_new from pillarbox.enqueue(
              namespace => 'shop', topic => 'orders', event_type => 'OrderCreated',
              aggregate_type => 'order', aggregate_id => ?, dedupe_key => ?, ordering_key => ?,
              payload => ?::jsonb, headers => ?::jsonb)""";

    private static final String ENQUEUE_MANY =
            "select id, is_new from pillarbox.enqueue_many(?::jsonb) order by ord";

    private static final String COUNT = "select count(*) from orders where id = ?";

    /** The result of an enqueue. */
    record Enqueued(UUID id, boolean isNew) {}

    /** Work in a transaction. */
    interface Work<T> {
        T in(Connection connection) throws SQLException;
    }

    static final class ChangedMind extends RuntimeException {
        ChangedMind() {
            super("the customer changed her mind");
        }
    }

    /** Commits if the work succeeds, rolls back if it throws. */
    static <T> T transaction(Connection connection, Work<T> work) throws SQLException {
        connection.setAutoCommit(false);
        try {
            T result = work.in(connection);
            connection.commit();
            return result;
        } catch (SQLException | RuntimeException error) {
            connection.rollback();
            throw error;
        } finally {
            connection.setAutoCommit(true);
        }
    }

    /** Enqueues OrderCreated in the connection's transaction. */
    static Enqueued enqueue(Connection connection, long order, String total) throws SQLException {
        try (PreparedStatement call = connection.prepareStatement(ENQUEUE)) {
            call.setString(1, Long.toString(order));
            call.setString(2, "order-" + order + "/created");
            call.setString(3, "order-" + order);
            call.setString(4, "{\"order\": %d, \"total\": \"%s\"}".formatted(order, total));
            call.setString(5, "{\"traceparent\": \"%s\"}".formatted(TRACEPARENT));
            return answers(call).get(0);
        }
    }

    /** Enqueues all events of a JSON array with one statement, in order. */
    static List<Enqueued> enqueueMany(Connection connection, String events) throws SQLException {
        try (PreparedStatement call = connection.prepareStatement(ENQUEUE_MANY)) {
            call.setString(1, events);
            return answers(call);
        }
    }

    private static List<Enqueued> answers(PreparedStatement call) throws SQLException {
        List<Enqueued> answers = new ArrayList<>();
        try (ResultSet rows = call.executeQuery()) {
            while (rows.next()) {
                answers.add(new Enqueued(rows.getObject("id", UUID.class), rows.getBoolean("is_new")));
            }
        }
        return answers;
    }

    static Enqueued placeOrder(Connection connection, long order, String total) throws SQLException {
        try (PreparedStatement insert =
                connection.prepareStatement("insert into orders (id, total) values (?, ?::numeric)")) {
            insert.setLong(1, order);
            insert.setString(2, total);
            insert.executeUpdate();
        }
        return enqueue(connection, order, total);
    }

    /** Does the order have this many rows? A producer sees no event; `scripts/examples` compares what is delivered. */
    static boolean thereAre(Connection connection, long count, long order) throws SQLException {
        try (PreparedStatement query = connection.prepareStatement(COUNT)) {
            query.setLong(1, order);
            try (ResultSet row = query.executeQuery()) {
                return row.next() && row.getLong(1) == count;
            }
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException("check failed: " + what);
        }
    }

    static void run(Connection connection) throws SQLException {
        Enqueued first = transaction(connection, tx -> placeOrder(tx, 1, "19.90"));
        check(first.isNew() && thereAre(connection, 1, 1), "order 1 exists and its event is new");
        System.out.println("enqueued " + first.id() + " OrderCreated");

        try {
            transaction(connection, tx -> {
                placeOrder(tx, 2, "5.00");
                throw new ChangedMind();
            });
        } catch (ChangedMind error) {
            check(thereAre(connection, 0, 2), "order 2 does not exist");
            System.out.println("rolled back: " + error.getMessage());
        }

        Enqueued again = transaction(connection, tx -> enqueue(tx, 1, "19.90"));
        check(again.equals(new Enqueued(first.id(), false)), "a second enqueue with the same dedupe key is not new");
        System.out.println("already enqueued: " + again.id());

        String event = """
                {"namespace": "shop", "topic": "stock", "event_type": "StockReserved",
                 "ordering_key": "article-%1$s", "payload": {"order": 1, "article": "%1$s"}}""";
        String events = "[%s, %s, %s]".formatted(
                event.formatted("tea"), event.formatted("pot"), event.formatted("cup"));
        List<Enqueued> reserved = transaction(connection, tx -> enqueueMany(tx, events));
        check(reserved.size() == 3 && reserved.stream().allMatch(Enqueued::isNew), "three events are new");
        for (Enqueued one : reserved) {
            System.out.println("enqueued " + one.id() + " StockReserved");
        }
    }

    public static void main(String[] arguments) throws SQLException {
        try (Connection connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            run(connection);
        }
    }
}
