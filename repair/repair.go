// Package repair keeps what was committed whole: it works off repair rows (rebuild.go), removes the shards of blobs that
// nothing references (garbage.go), verifies that every reference has its shards (verify.go) and that every shard has
// a reference (orphan.go). queue.go chooses the rows that are due, propose.go writes what came of them in batches, and
// health.go remembers the drives that do not answer.
//
// For each metadata group the node that leads it does the work, driven by rows in the group itself: nothing is
// remembered elsewhere, so a change of leader loses nothing. Every loop is bounded and every call has a deadline. It
// imports erasure, shard, metadata and cluster, and knows no HTTP.
package repair

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"objstore/cluster"
	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/metadata"
	"objstore/metadata/router"
	"objstore/shard"
)

// Limits of one node's repair.
const (
	pageRows       = 256             // rows read at a time
	roundInterval  = time.Second     // between rounds while there is work
	idleInterval   = 5 * time.Second // between rounds while nothing could be done
	roundMax       = time.Minute     // between rounds, however long the scan of rows that wait takes
	scanShare      = 10              // a scan may take one part in so many of the time
	queryTimeout   = 15 * time.Second
	callTimeout    = 10 * time.Second // for one call to one drive
	rebuildTimeout = 2 * time.Minute  // for one shard, and the time that its bytes take at slowRate
	slowRate       = 8 << 20          // bytes per second at least expected of a drive and its node
	proposeTimeout = 15 * time.Second
	rowLife        = time.Minute     // a row read longer ago is read again before it is worked on
	backoffMin     = 2 * time.Second // before a row is tried again, doubled up to backoffMax
	backoffMax     = 5 * time.Minute
	holdMin        = 2 * time.Second // before a drive that did not answer is tried again, doubled up to holdMax
	holdMax        = time.Minute
	maxRemembered  = 200000 // rows whose back-off is kept in memory; beyond that any is forgotten
)

// Config of a worker. Zero values are not replaced.
type Config struct {
	Self           ident.Node
	Concurrency    int           // shards rebuilt at a time
	CommitAge      time.Duration // a row that came from a commit is left alone for this long (PROTOCOLS D: 30 s)
	GarbageGrace   time.Duration // between first sight of a g/ row and removal of its shards (PROTOCOLS D: 15 min)
	VerifyInterval time.Duration // between two verify passes over a group; 0 is never
	VerifyRate     int64         // bytes per second of shards checked, for each node
}

// Deps are what a worker stands on.
type Deps struct {
	Router router.API
	Source cluster.Source
	Dialer shard.Dialer
	Pool   *shard.Pool // repair's own: nothing else waits for it
	// Leads lists the metadata groups whose leader is on this node.
	Leads func() []ident.Group
	// Alive is a hint; false only when the node is believed down.
	Alive func(ident.Node) bool
	// Disowned asks node whether its process no longer writes the blob. Unreachable is an error.
	Disowned func(ctx context.Context, node ident.Node, w shard.WriterID, blob ident.ID) (bool, error)
	// Count counts shard bytes that repair moved.
	Count func(transport, op string, bytes int)
	Event func(kind, detail string)
}

// Metrics count since the start of the process.
type Metrics struct {
	Landed, Rebuilt, Superseded, Lost, Failed atomic.Int64
	GarbageBlobs, VerifiedShards, BadShards   atomic.Int64
	Orphans                                   atomic.Int64
}

// Worker is one node's repair. Run it once.
type Worker struct {
	cfg      Config
	deps     Deps
	codecs   erasure.Codecs
	kicks    struct{ repair, garbage chan struct{} }
	outcomes chan outcome
	targets  health // of drives that shards are rebuilt on
	sources  health // of drives that shards are read from
	removals health // of drives that garbage is removed from
	garbage  sights // belongs to the goroutine of garbageRound
	Metrics  Metrics
	mu       struct {
		sync.Mutex
		retry  map[rowID]retry         // repair rows that were tried
		flight map[rowID]struct{}      // rows being worked on: at most Concurrency and what waits to be proposed
		pass   map[ident.Group]passPos // verify pass of each group
		synced time.Time               // when group 0 was last asked for a newer map
	}
}

type rowID struct {
	blob  ident.ID
	index uint8
}

type retry struct {
	at    time.Time
	delay time.Duration
}

// New returns a worker.
func New(cfg Config, deps Deps) *Worker {
	cfg.Concurrency = max(cfg.Concurrency, 1)
	w := &Worker{cfg: cfg, deps: deps, outcomes: make(chan outcome, batchRows)}
	w.kicks.repair, w.kicks.garbage = make(chan struct{}, 1), make(chan struct{}, 1)
	w.garbage.m = map[ident.ID]sight{}
	w.mu.retry = map[rowID]retry{}
	w.mu.flight = map[rowID]struct{}{}
	w.mu.pass = map[ident.Group]passPos{}
	return w
}

// Kick starts a round now and forgets back-offs: a node came back.
func (w *Worker) Kick() {
	w.mu.Lock()
	clear(w.mu.retry)
	w.mu.Unlock()
	for _, h := range []*health{&w.targets, &w.sources, &w.removals} {
		h.clear()
	}
	for _, c := range []chan struct{}{w.kicks.repair, w.kicks.garbage} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Run works until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	jobs := make(chan *job)
	for range w.cfg.Concurrency {
		wg.Go(func() { w.work(ctx, jobs) })
	}
	wg.Go(func() { w.proposeLoop(ctx) })
	wg.Go(func() {
		w.loop(ctx, w.kicks.repair, func(ctx context.Context) time.Duration { return w.repairRound(ctx, jobs) })
	})
	wg.Go(func() { w.loop(ctx, w.kicks.garbage, w.garbageRound) })
	if w.cfg.VerifyInterval > 0 {
		wg.Go(func() { w.loop(ctx, nil, w.verifyRound) })
		wg.Go(func() { w.orphanLoop(ctx) })
	}
}

// loop runs rounds; a round says how long to wait for the next, if nobody kicks.
func (w *Worker) loop(ctx context.Context, kick <-chan struct{}, round func(context.Context) time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-kick:
		}
		timer.Reset(round(ctx))
	}
}

// query asks a group. took adds up how long that was.
func (w *Worker) query(ctx context.Context, g ident.Group, q *metadata.Query, took *time.Duration) (*metadata.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	began := time.Now()
	a, err := w.deps.Router.GroupQuery(ctx, g, q)
	*took += time.Since(began)
	return a, err
}

// pause is how long to wait after a round, so that scanning rows that are not due stays a small part of the time.
func pause(interval, took time.Duration) time.Duration {
	return max(interval, min(scanShare*took, roundMax))
}

// drive returns the drive of a blob's shard as the newest map has it, nil if the map has no such placement.
func (w *Worker) drive(b *metadata.Blob, index uint8) *cluster.Drive {
	v := w.deps.Source.View()
	if int(b.PG) >= len(v.PGs) || int(index) >= len(v.PGs[b.PG].Drives) {
		return nil
	}
	return v.Drives[v.PGs[b.PG].Drives[index]]
}

func (w *Worker) ref(b *metadata.Blob, index uint8, d *cluster.Drive) shard.Ref {
	return shard.Ref{Drive: d.ID, Incarnation: d.Incarnation, Epoch: w.deps.Source.View().Epoch, Blob: b.ID, Index: index}
}

// refresh asks group 0 for a newer map, once in a second at most: a drive said that this one is old.
func (w *Worker) refresh(ctx context.Context) {
	w.mu.Lock()
	fresh := time.Since(w.mu.synced) < roundInterval
	if !fresh {
		w.mu.synced = time.Now()
	}
	w.mu.Unlock()
	if fresh {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	w.deps.Source.Sync(ctx) // what it brings is seen by the next try
}

// byLength is a deadline for work on so many bytes.
func byLength(least time.Duration, bytes int64) time.Duration {
	return least + time.Duration(float64(bytes)/slowRate*float64(time.Second))
}
