// Package repair keeps what was committed whole: it works off repair rows (rebuild.go), removes the shards of blobs that
// nothing references (garbage.go), verifies that every reference has its shards (verify.go) and that every shard has
// a reference (orphan.go).
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
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/metadata/router"
	"objstore/shard"
)

// Limits of one node's repair.
const (
	pageRows       = 256              // rows read and worked off at a time
	roundInterval  = time.Second      // between rounds while there is work
	idleInterval   = 5 * time.Second  // between rounds while nothing could be done
	statTimeout    = 15 * time.Second // for one check of one shard
	rebuildTimeout = 10 * time.Minute // for one shard
	proposeTimeout = 15 * time.Second
	backoffMin     = 2 * time.Second // before a row is tried again, doubled up to backoffMax
	backoffMax     = 5 * time.Minute
	maxRemembered  = 200000 // rows whose back-off or first sight is kept in memory; beyond that all are forgotten
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
	cfg     Config
	deps    Deps
	kick    chan struct{}
	Metrics Metrics
	mu      struct {
		sync.Mutex
		retry map[rowID]retry         // repair rows that were tried
		seen  map[ident.ID]time.Time  // g/ rows, by blob: monotonic first sight
		pass  map[ident.Group]passPos // verify pass of each group
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
	w := &Worker{cfg: cfg, deps: deps, kick: make(chan struct{}, 1)}
	w.mu.retry = map[rowID]retry{}
	w.mu.seen = map[ident.ID]time.Time{}
	w.mu.pass = map[ident.Group]passPos{}
	return w
}

// Kick starts a round now and forgets back-offs: a node came back.
func (w *Worker) Kick() {
	w.mu.Lock()
	clear(w.mu.retry)
	w.mu.Unlock()
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { w.loop(ctx, w.repairRound) })
	wg.Go(func() { w.loop(ctx, w.garbageRound) })
	if w.cfg.VerifyInterval > 0 {
		wg.Go(func() { w.loop(ctx, w.verifyRound) })
		wg.Go(func() { w.orphanLoop(ctx) })
	}
}

// loop runs rounds; a round says whether it did anything.
func (w *Worker) loop(ctx context.Context, round func(context.Context) bool) {
	for {
		interval := idleInterval
		if round(ctx) {
			interval = roundInterval
		}
		timer := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-w.kick:
			timer.Stop()
		}
	}
}

// repairRound goes once over the repair rows of every group led here.
func (w *Worker) repairRound(ctx context.Context) (worked bool) {
	for _, g := range w.deps.Leads() {
		after := ""
		for ctx.Err() == nil {
			a, err := w.deps.Router.GroupQuery(ctx, g, &metadata.Query{Op: metadata.QueryRepair, After: after, Max: pageRows})
			if err != nil {
				break // no leader now: the next round finds the new one
			}
			if w.repairPage(ctx, g, a.Repairs) {
				worked = true
			}
			if !a.Truncated {
				break
			}
			after = a.Next
		}
	}
	return worked
}

// repairPage works off the rows that are due, then proposes what came of it in one command for each bucket.
func (w *Worker) repairPage(ctx context.Context, g ident.Group, rows []metadata.RepairRow) bool {
	var out outcomes
	var wg sync.WaitGroup
	slots := make(chan struct{}, w.cfg.Concurrency)
	for i := range rows {
		row := &rows[i]
		if ctx.Err() != nil {
			break
		}
		if !w.due(row) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			w.repairRow(ctx, row, &out)
		})
	}
	wg.Wait()
	w.propose(ctx, g, &out)
	return out.any()
}

// due says whether a row is to be tried now: old enough, not backed off, its drive's node not known to be down.
func (w *Worker) due(row *metadata.RepairRow) bool {
	if !row.Checked && time.Since(time.UnixMilli(row.Created)) < w.cfg.CommitAge {
		return false
	}
	w.mu.Lock()
	r, tried := w.mu.retry[rowID{row.Blob.ID, row.Index}]
	w.mu.Unlock()
	if tried && time.Now().Before(r.at) {
		return false
	}
	d := w.drive(&row.Blob, row.Index)
	return d != nil && d.State != cluster.DriveRemoved && w.deps.Alive(d.Node)
}

func (w *Worker) backOff(row *metadata.RepairRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.retry) >= maxRemembered {
		clear(w.mu.retry)
	}
	id := rowID{row.Blob.ID, row.Index}
	r := w.mu.retry[id]
	r.delay = min(max(2*r.delay, backoffMin), backoffMax)
	if row.Lost {
		r.delay = backoffMax
	}
	r.at = time.Now().Add(r.delay)
	w.mu.retry[id] = r
}

func (w *Worker) forget(row *metadata.RepairRow) {
	w.mu.Lock()
	delete(w.mu.retry, rowID{row.Blob.ID, row.Index})
	w.mu.Unlock()
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

// outcomes collects what a page of rows came to.
type outcomes struct {
	mu       sync.Mutex
	landings map[ident.ID][]metadata.Landing
	reports  map[ident.ID][]metadata.Report
	ended    map[ident.ID][]metadata.RepairOutcome
}

func (o *outcomes) any() bool { return len(o.landings)+len(o.reports)+len(o.ended) > 0 }

func add[T any](o *outcomes, m *map[ident.ID][]T, bucket ident.ID, x T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if *m == nil {
		*m = map[ident.ID][]T{}
	}
	(*m)[bucket] = append((*m)[bucket], x)
}

// propose writes the outcomes into the group. What cannot be proposed now is found again in the next round.
func (w *Worker) propose(ctx context.Context, g ident.Group, o *outcomes) {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	for bucket, l := range o.landings {
		_, err := w.deps.Router.CommandByID(ctx, bucket, &metadata.Command{Op: metadata.OpLanded, Key: l[0].Key, Landings: l})
		w.failed("landed", err)
	}
	for bucket, r := range o.reports {
		_, err := w.deps.Router.CommandByID(ctx, bucket, &metadata.Command{Op: metadata.OpReportBad, Key: r[0].Key, Reports: r})
		w.failed("report", err)
	}
	for bucket, r := range o.ended {
		_, err := w.deps.Router.GroupCommand(ctx, g, &metadata.Command{Op: metadata.OpRepairDone, Bucket: bucket, Repairs: r})
		w.failed("repair_done", err)
	}
}

func (w *Worker) failed(what string, err error) {
	if err == nil || oerr.Is(err, oerr.NoSuchBucket) || oerr.Is(err, oerr.Canceled) {
		return
	}
	w.Metrics.Failed.Add(1)
	w.deps.Event("repair_failed", what+": "+err.Error())
}
