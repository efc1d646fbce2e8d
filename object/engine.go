package object

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"objstore/cluster"
	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/metadata/router"
	"objstore/shard"
)

// Config is what a gateway process is told. A zero duration or count takes its default; all defaults are starting
// values.
type Config struct {
	Node    ident.Node // this node; its own shards are preferred where there is a choice
	StartID ident.ID   // random for each process start; stands in each shard's header

	MaxInline int64 // bytes; bodies up to this live in the metadata row. Default and maximum metadata.MaxInline; -1 is none

	GraceMin  time.Duration // wait for a drive at least this long after its shard was sent, once a quorum has it; 20 ms
	GraceMax  time.Duration // and at most this long; 2 s
	GraceCold time.Duration // for a drive whose latency is not known yet; 250 ms
	Laggard   time.Duration // a stream that alone holds a put up for this long is given up; 1 s
	WriteIdle time.Duration // limit of each append and commit; 10 s
	LateMax   time.Duration // streams open at the commit stay open for this long; 10 s
	LateCount int           // shards that may be late at one time; 256

	HedgeMin    time.Duration // a read is late after at least this long; 20 ms
	HedgeMax    time.Duration // and after this long whatever the drive's record; 1 s
	HedgeCold   time.Duration // for a drive whose latency is not known yet; 100 ms
	ReadTimeout time.Duration // for all shards of a window together; 5 s

	MetadataTimeout time.Duration // for each command or query, retries included; 12 s: the router gives up after 10
	AdmitTimeout    time.Duration // wait for buffer memory before Busy; 30 s
}

const (
	maxBackground = 64              // cleanups of failed puts that run at one time
	suspectFor    = 2 * time.Second // a drive that failed or was slow is not asked first for this long
	slabBytes     = 1 << 20         // bytes of each shard that travel together, at most one cell more
	slabsPerPut   = 3               // slabs of one streamed put that exist at one time
	inlineDigest  = 256 << 10       // bytes; larger bodies are hashed on goroutines of their own
	minPool       = 32 << 20        // bytes
)

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.GraceMin, 20*time.Millisecond)
	def(&c.GraceMax, 2*time.Second)
	def(&c.GraceCold, 250*time.Millisecond)
	def(&c.Laggard, time.Second)
	def(&c.WriteIdle, 10*time.Second)
	def(&c.LateMax, 10*time.Second)
	def(&c.HedgeMin, 20*time.Millisecond)
	def(&c.HedgeMax, time.Second)
	def(&c.HedgeCold, 100*time.Millisecond)
	def(&c.ReadTimeout, 5*time.Second)
	def(&c.MetadataTimeout, 12*time.Second)
	def(&c.AdmitTimeout, 30*time.Second)
	if c.LateCount == 0 {
		c.LateCount = 256
	}
	switch {
	case c.MaxInline == 0:
		c.MaxInline = metadata.MaxInline
	case c.MaxInline < 0:
		c.MaxInline = 0
	}
	return c
}

// Validate returns every problem at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("object: "+format, args...)) }
	if c.Node == 0 {
		bad("no node number")
	}
	if c.StartID.IsZero() {
		bad("no process start id")
	}
	if c.MaxInline > metadata.MaxInline {
		bad("inline limit of %d bytes, at most %d", c.MaxInline, metadata.MaxInline)
	}
	for _, d := range []time.Duration{c.GraceMin, c.GraceMax, c.GraceCold, c.Laggard, c.WriteIdle, c.LateMax,
		c.HedgeMin, c.HedgeMax, c.HedgeCold, c.ReadTimeout, c.MetadataTimeout, c.AdmitTimeout} {
		if d < 0 {
			bad("negative duration %s", d)
		}
	}
	if c.LateCount < 0 {
		bad("negative count of late shards %d", c.LateCount)
	}
	return errors.Join(errs...)
}

// Buckets makes and removes buckets over their two groups (PROTOCOLS B).
type Buckets interface {
	Create(ctx context.Context, name, owner string) error // BucketExists
	Delete(ctx context.Context, name string) error        // NoSuchBucket, BucketNotEmpty
}

// Deps is what the engine works with. Router, Cluster, Dialer, Pool and Buckets are needed, the rest may be nil.
type Deps struct {
	Router  router.API
	Cluster cluster.Source
	Dialer  shard.Dialer
	Buckets Buckets
	// Pool is the engine's alone. Half of its budget is for puts, 5/16 for reads, 3/16 for rebuilding.
	// A streamed put takes three stripes of n MiB each, rounded up to a power of two.
	Pool *shard.Pool

	Alive      func(ident.Node) bool                 // a hint; nil: all nodes
	CountShard func(transport, op string, bytes int) // each shard byte once; op is put or get
	OnEvent    func(Event)                           // must not block
	Now        func() time.Time                      // for creation times; nil: time.Now
	NewID      func() ident.ID                       // nil: ident.New
}

// Engine is the gateway's object engine. All methods are safe for concurrent use.
type Engine struct {
	cfg    Config
	d      Deps
	codecs erasure.Codecs
	drives driveStats
	flight registry
	admit  struct{ put, read, rebuild *gate }

	put  atomic.Uint64 // puts of this process, for shard.WriterID
	late lateBudget
	land chan landing
	bad  badShards
	jobs chan struct{} // slots for cleanups

	ctx    context.Context // of background work; ends at Close
	cancel context.CancelFunc
	mu     struct {
		sync.Mutex
		closed bool
	}
	wg sync.WaitGroup
}

// New returns an engine. It starts two goroutines, which propose late landings and reports of bad shards in batches;
// Close ends them.
func New(cfg Config, deps Deps) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Router == nil || deps.Cluster == nil || deps.Dialer == nil || deps.Pool == nil || deps.Buckets == nil {
		return nil, errors.New("object: router, cluster, dialer, buckets and pool are all needed")
	}
	if deps.Pool.Budget() < minPool {
		return nil, fmt.Errorf("object: buffer pool of %d bytes, need at least %d", deps.Pool.Budget(), minPool)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.NewID == nil {
		deps.NewID = ident.New
	}
	if deps.CountShard == nil {
		deps.CountShard = func(string, string, int) {}
	}
	if deps.OnEvent == nil {
		deps.OnEvent = func(Event) {}
	}
	if deps.Alive == nil {
		deps.Alive = func(ident.Node) bool { return true }
	}
	e := &Engine{cfg: cfg.withDefaults(), d: deps, land: make(chan landing, maxLandings), jobs: make(chan struct{}, maxBackground)}
	budget := deps.Pool.Budget()
	e.admit.put, e.admit.read, e.admit.rebuild = newGate(budget/2), newGate(budget/16*5), newGate(budget/16*3)
	e.late.max, e.late.maxBytes = e.cfg.LateCount, budget/4
	e.bad.queue = make(chan badShard, maxReports)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.wg.Add(2)
	go e.landLoop()
	go e.reportLoop()
	return e, nil
}

// Close ends background work and waits for it. Calls that are running are their callers' to end first.
func (e *Engine) Close() {
	e.mu.Lock()
	e.mu.closed = true
	e.mu.Unlock()
	e.cancel()
	e.wg.Wait()
}

// background runs f on a goroutine that Close waits for; false when the engine is closed.
func (e *Engine) background(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed {
		return false
	}
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		f()
	}()
	return true
}

// command proposes cmd by bucket name within the metadata deadline.
func (e *Engine) command(ctx context.Context, bucket string, cmd *metadata.Command) (metadata.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.MetadataTimeout)
	defer cancel()
	return e.d.Router.Command(ctx, bucket, cmd)
}

// commandByID proposes cmd by bucket id within the metadata deadline.
func (e *Engine) commandByID(ctx context.Context, bucket ident.ID, cmd *metadata.Command) (metadata.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.MetadataTimeout)
	defer cancel()
	return e.d.Router.CommandByID(ctx, bucket, cmd)
}

// query asks by bucket name within the metadata deadline.
func (e *Engine) query(ctx context.Context, bucket string, q *metadata.Query) (*metadata.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.MetadataTimeout)
	defer cancel()
	ans, err := e.d.Router.Query(ctx, bucket, q)
	if err == nil && ans == nil {
		return nil, oerr.Errorf("object.query", oerr.Internal, "query %d got no answer and no error", q.Op)
	}
	return ans, err
}

// nowMS is for creation times only; apply settles every time that decides something.
func (e *Engine) nowMS() int64 { return e.d.Now().UnixMilli() }
