"""Commits an order and its event in one transaction, with psycopg 3."""

import os
import sys

import psycopg
from psycopg.types.json import Jsonb

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Changed(Exception):
    """An error after the event was enqueued."""


def enqueue(connection, order, total):
    """Enqueues OrderCreated in the open transaction."""
    return connection.execute(
        """
        select id, is_new from pillarbox.enqueue(
            namespace => 'shop', topic => 'orders', event_type => 'OrderCreated',
            aggregate_type => 'order', aggregate_id => %(order)s,
            dedupe_key => %(dedupe_key)s, ordering_key => %(ordering_key)s,
            payload => %(payload)s, headers => %(headers)s)
        """,
        {
            "order": str(order),
            "dedupe_key": f"order-{order}/created",
            "ordering_key": f"order-{order}",
            "payload": Jsonb({"order": order, "total": total}),
            "headers": Jsonb({"traceparent": TRACEPARENT}),
        },
    ).fetchone()


def enqueue_many(connection, events):
    """Enqueues all events with one statement, in order."""
    return connection.execute(
        "select id, is_new from pillarbox.enqueue_many(%s) order by ord", [Jsonb(events)]
    ).fetchall()


def place_order(connection, order, total):
    with connection.transaction():  # commits at its end, rolls back on an exception
        connection.execute("insert into orders (id, total) values (%s, %s)", [order, total])
        return enqueue(connection, order, total)


def count(connection, order):
    """Counts the rows of this order. A producer sees no event; `scripts/examples` compares what is delivered."""
    return connection.execute("select count(*) from orders where id = %s", [order]).fetchone()[0]


def check(holds, what):
    if not holds:
        sys.exit(f"check failed: {what}")


def main():
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        first, is_new = place_order(connection, 1, "19.90")
        check(is_new and count(connection, 1) == 1, "order 1 exists and its event is new")
        print(f"enqueued {first} OrderCreated")

        try:
            with connection.transaction():
                place_order(connection, 2, "5.00")
                raise Changed("the customer changed her mind")
        except Changed as error:
            check(count(connection, 2) == 0, "order 2 does not exist")
            print(f"rolled back: {error}")

        again, is_new = enqueue(connection, 1, "19.90")
        check(not is_new and again == first, "a second enqueue with the same dedupe key is not new")
        print(f"already enqueued: {again}")

        events = [
            {
                "namespace": "shop",
                "topic": "stock",
                "event_type": "StockReserved",
                "ordering_key": f"article-{article}",
                "payload": {"order": 1, "article": article},
            }
            for article in ("tea", "pot", "cup")
        ]
        reserved = enqueue_many(connection, events)
        check([is_new for _, is_new in reserved] == [True] * 3, "three events are new")
        for id, _ in reserved:
            print(f"enqueued {id} StockReserved")


if __name__ == "__main__":
    main()
