// Commits an order and its event in one transaction, with pgx.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

var errChangedMind = errors.New("the customer changed her mind")

// enqueued is the result of an enqueue.
type enqueued struct {
	ID    string `db:"id"`
	IsNew bool   `db:"is_new"`
}

// event is one entry of enqueue_many. Its keys are the arguments of pillarbox.enqueue.
type event struct {
	Namespace   string         `json:"namespace"`
	Topic       string         `json:"topic"`
	EventType   string         `json:"event_type,omitempty"`
	OrderingKey string         `json:"ordering_key,omitempty"`
	Payload     map[string]any `json:"payload"`
}

// enqueue enqueues OrderCreated in the transaction.
func enqueue(ctx context.Context, tx pgx.Tx, order int, total string) (enqueued, error) {
	rows, err := tx.Query(ctx, `
		select id::text, is_new from pillarbox.enqueue(
			namespace => 'shop', topic => 'orders', event_type => 'OrderCreated',
			aggregate_type => 'order', aggregate_id => @order, dedupe_key => @dedupe_key,
			ordering_key => @ordering_key, payload => @payload, headers => @headers)`,
		pgx.NamedArgs{
			"order":        fmt.Sprint(order),
			"dedupe_key":   fmt.Sprintf("order-%d/created", order),
			"ordering_key": fmt.Sprintf("order-%d", order),
			"payload":      map[string]any{"order": order, "total": total},
			"headers":      map[string]string{"traceparent": traceparent},
		})
	if err != nil {
		return enqueued{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[enqueued])
}

// enqueueMany enqueues all events with one statement, in order.
func enqueueMany(ctx context.Context, tx pgx.Tx, events []event) ([]enqueued, error) {
	rows, err := tx.Query(ctx, "select id::text, is_new from pillarbox.enqueue_many($1) order by ord", events)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[enqueued])
}

func placeOrder(ctx context.Context, tx pgx.Tx, order int, total string) (enqueued, error) {
	if _, err := tx.Exec(ctx, "insert into orders (id, total) values ($1, $2)", order, total); err != nil {
		return enqueued{}, err
	}
	return enqueue(ctx, tx, order, total)
}

// check fails unless the order has `want` rows. A producer sees no event; `scripts/examples` compares what is delivered.
func check(ctx context.Context, conn *pgx.Conn, order, want int) error {
	var orders int
	err := conn.QueryRow(ctx, "select count(*) from orders where id = $1", order).Scan(&orders)
	if err == nil && orders != want {
		err = fmt.Errorf("order %d has %d rows, expected %d", order, orders, want)
	}
	return err
}

// run places an order, rolls one back, enqueues a duplicate, and enqueues three events with one call.
func run(ctx context.Context, conn *pgx.Conn) error {
	var first enqueued
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) { // commits unless there is an error
		first, err = placeOrder(ctx, tx, 1, "19.90")
		return err
	})
	if err = errors.Join(err, check(ctx, conn, 1, 1)); err != nil {
		return err
	}
	if !first.IsNew {
		return errors.New("the first event of order 1 is not new")
	}
	fmt.Println("enqueued", first.ID, "OrderCreated")

	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := placeOrder(ctx, tx, 2, "5.00"); err != nil {
			return err
		}
		return errChangedMind
	})
	if !errors.Is(err, errChangedMind) {
		return fmt.Errorf("order 2 was not rolled back: %v", err)
	}
	if err := check(ctx, conn, 2, 0); err != nil {
		return err
	}
	fmt.Println("rolled back:", err)

	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		again, err := enqueue(ctx, tx, 1, "19.90")
		if err != nil {
			return err
		}
		if again != (enqueued{ID: first.ID, IsNew: false}) {
			return fmt.Errorf("a second enqueue with the same dedupe key returned %+v", again)
		}
		fmt.Println("already enqueued:", again.ID)
		return reserve(ctx, tx, "tea", "pot", "cup")
	})
}

// reserve enqueues StockReserved for each article of order 1.
func reserve(ctx context.Context, tx pgx.Tx, articles ...string) error {
	var events []event
	for _, article := range articles {
		events = append(events, event{
			Namespace: "shop", Topic: "stock", EventType: "StockReserved", OrderingKey: "article-" + article,
			Payload: map[string]any{"order": 1, "article": article},
		})
	}
	reserved, err := enqueueMany(ctx, tx, events)
	if err != nil {
		return err
	}
	for _, one := range reserved {
		if !one.IsNew {
			return fmt.Errorf("%s is not new", one.ID)
		}
		fmt.Println("enqueued", one.ID, "StockReserved")
	}
	if len(reserved) != len(events) {
		return fmt.Errorf("%d of %d events were enqueued", len(reserved), len(events))
	}
	return nil
}

func main() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err == nil {
		defer conn.Close(ctx)
		err = run(ctx, conn)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "check failed:", err)
		os.Exit(1)
	}
}
