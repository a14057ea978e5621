// River with the configuration of its own benchmark (`river bench`): many workers, and short pauses between fetches.
//
// The modes and the protocol are those of ../peer.mjs.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"math/rand"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type job struct {
	Order    int    `json:"order"`
	Customer string `json:"customer"`
	Currency string `json:"currency"`
	Note     string `json:"note"`
}

func (job) Kind() string { return "job" }

type worker struct {
	river.WorkerDefaults[job]
	handle func(order int)
}

func (w *worker) Work(_ context.Context, job *river.Job[job]) error {
	w.handle(job.Args.Order)
	return nil
}

const (
	maxConns          = 20
	maxWorkers        = 2000
	fetchCooldown     = 2 * time.Millisecond
	fetchPollInterval = 20 * time.Millisecond
)

func main() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	must(err)
	config.MaxConns = maxConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(err)
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet()})
	must(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	must(err)
	if os.Args[1] == "drain" {
		drain(ctx, pool)
	} else {
		latency(ctx, pool)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func number(name string, otherwise int) int {
	if value, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return value
	}
	return otherwise
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func ready() {
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"ready":   true,
		"version": version(),
		"configuration": map[string]any{
			"MaxConns":          maxConns,
			"MaxWorkers":        maxWorkers,
			"FetchCooldown":     fetchCooldown.String(),
			"FetchPollInterval": fetchPollInterval.String(),
		},
	}))
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	must(err)
}

// The version of River in this program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/riverqueue/river" {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return "unknown"
}

func start(ctx context.Context, pool *pgxpool.Pool, handle func(order int)) *river.Client[pgx.Tx] {
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{handle: handle})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}},
		Workers:           workers,
		Logger:            quiet(),
		FetchCooldown:     fetchCooldown,
		FetchPollInterval: fetchPollInterval,
	})
	must(err)
	must(client.Start(ctx))
	return client
}

func arguments(n int) job {
	return job{Order: n, Customer: fmt.Sprintf("c-%d", n), Currency: "EUR", Note: strings.Repeat("x", 235)}
}

func drain(ctx context.Context, pool *pgxpool.Pool) {
	rows := number("ROWS", 1000)
	inserter, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet()})
	must(err)
	for begin := 0; begin < rows; begin += 5000 {
		var batch []river.InsertManyParams
		for n := begin; n < min(begin+5000, rows); n++ {
			batch = append(batch, river.InsertManyParams{Args: arguments(n)})
		}
		_, err = inserter.InsertManyFast(ctx, batch)
		must(err)
	}
	for _, statement := range []string{"vacuum (analyze) river_job", "checkpoint"} {
		_, err = pool.Exec(ctx, statement)
		must(err)
	}
	ready()
	var handled atomic.Int64
	began := time.Now()
	client := start(ctx, pool, func(int) { handled.Add(1) })
	for handled.Load() < int64(rows) {
		time.Sleep(5 * time.Millisecond)
	}
	for {
		var left int
		must(pool.QueryRow(ctx, "select count(*) from river_job where state <> 'completed'").Scan(&left))
		if left == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	seconds := time.Since(began).Seconds()
	must(client.Stop(ctx))
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{"seconds": seconds, "handled": handled.Load()}))
}

func latency(ctx context.Context, pool *pgxpool.Pool) {
	ready()
	var lock sync.Mutex
	arrived := map[int]time.Time{}
	client := start(ctx, pool, func(order int) {
		lock.Lock()
		defer lock.Unlock()
		if _, found := arrived[order]; !found {
			arrived[order] = time.Now()
		}
	})
	count := func() int {
		lock.Lock()
		defer lock.Unlock()
		return len(arrived)
	}
	time.Sleep(time.Second) // its workers have started
	each := time.Second / time.Duration(number("RATE", 1))
	var committed []time.Time
	began := time.Now()
	for n := range number("RATE", 1) * number("SECONDS", 10) {
		place := (float64(n) + rand.Float64()) * float64(each)
		time.Sleep(time.Until(began.Add(time.Duration(place))))
		tx, err := pool.Begin(ctx)
		must(err)
		_, err = client.InsertTx(ctx, tx, arguments(n), nil)
		must(err)
		must(tx.Commit(ctx))
		committed = append(committed, time.Now())
	}
	for count() < len(committed) {
		time.Sleep(5 * time.Millisecond)
	}
	var times []float64
	for n, at := range committed {
		times = append(times, max(0, arrived[n].Sub(at).Seconds()*1000))
	}
	must(client.Stop(ctx))
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{"milliseconds": times}))
}
