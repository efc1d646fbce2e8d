package repair

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"hash"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"objstore/cluster"
	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/metadata/host"
	"objstore/object"
	"objstore/shard"
	"objstore/shard/shardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testBucket = "bucket"

var profile22 = erasure.Profile{K: 2, M: 2}

// harness is a worker and an engine over shards in memory and the real state machine of a metadata group, in a bubble
// of fake time.
type harness struct {
	t       *testing.T
	e       *object.Engine
	w       *Worker
	nodes   *shardtest.Cluster
	pool    *shard.Pool // repair's
	puts    *shard.Pool
	router  *memRouter
	source  *memSource
	events  eventLog
	start   ident.ID
	dead    sync.Map // ident.Node → bool: the liveness hint
	stopped func()
	// disown answers for the writers; nil asks the engine.
	disown func(ctx context.Context, node ident.Node, w shard.WriterID, blob ident.ID) (bool, error)
}

type options struct {
	profile erasure.Profile
	pool    int64
	dialer  func(shard.Dialer) shard.Dialer
	config  func(*Config)
}

// inBubble runs f with a fresh harness; afterwards nothing may be left of it.
func inBubble(t *testing.T, o options, f func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, o)
		defer h.close()
		f(h)
	})
}

func newHarness(t *testing.T, o options) *harness {
	if o.profile.K == 0 {
		o.profile = profile22
	}
	if o.pool == 0 {
		o.pool = 48 << 20
	}
	h := &harness{t: t, nodes: shardtest.NewCluster(o.profile.N()), pool: shard.NewPool(o.pool), puts: shard.NewPool(128 << 20), start: ident.New(), stopped: func() {}}
	h.source = newMemSource(o.profile, o.profile.N())
	h.source.edit(func(v *cluster.View) {
		for _, n := range v.Nodes {
			n.StartID = h.start
		}
	})
	h.router = newMemRouter(h.source)
	h.router.createSpan(h.bucket())
	alive := func(n ident.Node) bool { _, dead := h.dead.Load(n); return !dead }
	var err error
	h.e, err = object.New(object.Config{Node: 1, StartID: h.start, MaxInline: -1},
		object.Deps{Router: h.router, Cluster: h.source, Dialer: h.nodes, Pool: h.puts, Buckets: nopBuckets{}, Alive: alive})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Self: 1, Concurrency: 16, CommitAge: 30 * time.Second, GarbageGrace: 15 * time.Minute}
	if o.config != nil {
		o.config(&cfg)
	}
	var dialer shard.Dialer = h.nodes
	if o.dialer != nil {
		dialer = o.dialer(h.nodes)
	}
	h.w = New(cfg, Deps{Router: h.router, Source: h.source, Dialer: dialer, Pool: h.pool, Leads: func() []ident.Group { return []ident.Group{1} },
		Alive: alive, Count: func(string, string, int) {}, Event: h.events.add,
		Disowned: func(ctx context.Context, node ident.Node, by shard.WriterID, blob ident.ID) (bool, error) {
			if h.disown != nil {
				return h.disown(ctx, node, by, blob)
			}
			return h.e.Disowned(by.StartID, by.Put, blob), nil
		}})
	return h
}

// run starts the worker; stop, or the end of the test, ends it.
func (h *harness) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); h.w.Run(ctx) }()
	h.stopped = sync.OnceFunc(func() {
		began := time.Now()
		cancel()
		<-done
		if took := time.Since(began); took > 0 {
			h.t.Errorf("Run took %s to end", took)
		}
	})
}

func (h *harness) stop() { h.stopped() }

func (h *harness) close() {
	h.stop()
	if n := h.pool.InUse(); n != 0 {
		h.t.Errorf("%d bytes of repair's pool are in use", n)
	}
	h.nodes.SetFault(nil)
	h.e.Close()
	if n := h.puts.InUse(); n != 0 {
		h.t.Errorf("%d bytes of the engine's pool are in use", n)
	}
	if n := h.nodes.Writers(); n != 0 {
		h.t.Errorf("%d writers are open", n)
	}
	h.pool.Close()
	h.puts.Close()
}

// pass lets fake time go by.
func pass(d time.Duration) { <-time.After(d); synctest.Wait() }

// within polls f, and returns how long it took to come true.
func (h *harness) within(limit time.Duration, what string, f func() bool) time.Duration {
	h.t.Helper()
	began := time.Now()
	for !f() {
		if time.Since(began) > limit {
			h.t.Fatalf("not within %s: %s; %d pending, %d lost, events: %s", limit, what, h.count().Pending, h.count().Lost, h.events.text())
		}
		pass(50 * time.Millisecond)
	}
	return time.Since(began)
}

func (h *harness) bucket() ident.ID { return h.source.View().Buckets[testBucket].ID }

func (h *harness) put(key string, size int) []byte {
	h.t.Helper()
	body, err := h.tryPut(key, size)
	if err != nil {
		h.t.Fatalf("put %q: %v", key, err)
	}
	return body
}

func (h *harness) tryPut(key string, size int) ([]byte, error) {
	body := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(len(key)), byte(size)}).Read(body)
	d := md5.New()
	_, err := h.e.Put(context.Background(), &object.PutRequest{Bucket: testBucket, Key: key, Body: object.Body{Reader: bytes.NewReader(body),
		Length: int64(size), Digests: []hash.Hash{d}, Seal: func() (object.Sealed, error) {
			return object.Sealed{ETag: hex.EncodeToString(d.Sum(nil))}, nil
		}}})
	return body, err
}

func (h *harness) expect(key string, want []byte) {
	h.t.Helper()
	o, err := h.e.Open(context.Background(), testBucket, key, true)
	if err != nil {
		h.t.Fatalf("open %q: %v", key, err)
	}
	defer o.Close()
	var got bytes.Buffer
	if err := o.WriteRange(context.Background(), &got, 0, int64(len(want))); err != nil || !bytes.Equal(got.Bytes(), want) {
		h.t.Fatalf("read %q: %d bytes, expected %d others; %v", key, got.Len(), len(want), err)
	}
}

func (h *harness) version(key string) *metadata.Version {
	h.t.Helper()
	a, err := h.router.Query(context.Background(), testBucket, &metadata.Query{Op: metadata.QueryGet, Key: key})
	if err != nil {
		h.t.Fatal(err)
	}
	return a.Version
}

func (h *harness) blob(key string) *metadata.Blob { h.t.Helper(); return h.version(key).Parts[0].Blob }

func (h *harness) delete(key string) {
	h.t.Helper()
	if err := h.e.Delete(context.Background(), testBucket, key, metadata.Precondition{}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) ref(b *metadata.Blob, i int) shard.Ref {
	return h.w.ref(b, uint8(i), h.w.drive(b, uint8(i)))
}

func (h *harness) mem(b *metadata.Blob, i int) *shardtest.Mem {
	return h.nodes.Node(h.w.drive(b, uint8(i)).Node)
}

// has reports whether the drive of shard i has it as it was committed.
func (h *harness) has(b *metadata.Blob, i int) bool {
	data, crcs := h.mem(b, i).Data(h.ref(b, i))
	return data != nil && shard.Digest(crcs) == b.Digests[i] && shard.CheckBlocks(b.ID, uint8(i), 0, data, crcs) == nil
}

// whole expects all shards of a blob in their places, and no repair row.
func (h *harness) whole(key string) {
	h.t.Helper()
	b := h.blob(key)
	for i := range b.Digests {
		if !h.has(b, i) {
			h.t.Errorf("shard %d of %q is not as it was committed", i, key)
		}
	}
	if b.Missing != 0 {
		h.t.Errorf("missing shards of %q: %#x", key, b.Missing)
	}
}

func (h *harness) count() *metadata.Answer {
	h.t.Helper()
	a, err := h.router.GroupQuery(context.Background(), 1, &metadata.Query{Op: metadata.QueryRepairCount})
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

func (h *harness) repaired() bool { c := h.count(); return c.Pending+c.Lost == 0 }

func (h *harness) garbage() int {
	h.t.Helper()
	a, err := h.router.GroupQuery(context.Background(), 1, &metadata.Query{Op: metadata.QueryGarbage})
	if err != nil {
		h.t.Fatal(err)
	}
	return len(a.Garbage)
}

// report makes a repair row, as a failed check does.
func (h *harness) report(key string, index int) {
	h.t.Helper()
	v := h.version(key)
	if err := h.w.Report(context.Background(), h.bucket(), []metadata.Report{{Key: key, Version: v.ID, Blob: v.Parts[0].Blob.ID, Index: uint8(index)}}); err != nil {
		h.t.Fatal(err)
	}
}

// write puts a shard on its drive, with these bytes.
func (h *harness) write(b *metadata.Blob, i int, data []byte) {
	h.t.Helper()
	w, err := h.mem(b, i).Create(context.Background(), h.spec(b, i, len(data)))
	if err == nil {
		err = w.Append(context.Background(), nil, data, shard.AppendCRCs(nil, b.ID, uint8(i), 0, data))
	}
	if err == nil {
		_, err = w.Commit(context.Background())
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) spec(b *metadata.Blob, i, length int) shard.Spec {
	return shard.Spec{Ref: h.ref(b, i), K: b.K, M: b.M, CellSize: b.CellSize, Length: uint64(length), BodyLen: uint64(b.Size), Bucket: h.bucket(), Key: "key",
		Writer: shard.WriterID{Node: b.WriterNode, StartID: b.WriterStart, Put: b.WriterPut}, Attempt: 1, Repair: true}
}

type eventLog struct {
	mu  sync.Mutex
	all []string
}

func (l *eventLog) add(kind, detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, kind+": "+detail)
}

func (l *eventLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

func (l *eventLog) count(kind string) int { return strings.Count(l.text(), kind+": ") }

type nopBuckets struct{}

func (nopBuckets) Create(context.Context, string, string) error { return nil }
func (nopBuckets) Delete(context.Context, string) error         { return nil }

// memSource is a view that tests change; Sync may fail.
type memSource struct {
	v   atomic.Pointer[cluster.View]
	err atomic.Pointer[error]
}

func newMemSource(p erasure.Profile, nodes int) *memSource {
	v := &cluster.View{Index: 1, Formed: true, Profile: p, Epoch: 7, Nodes: map[ident.Node]*cluster.Node{}, Drives: map[ident.Drive]*cluster.Drive{},
		Buckets: map[string]*cluster.Bucket{}, ByID: map[ident.ID]*cluster.Bucket{}}
	for i := 1; i <= nodes; i++ {
		v.Nodes[ident.Node(i)] = &cluster.Node{ID: ident.Node(i)}
		v.Drives[ident.Drive(i)] = &cluster.Drive{ID: ident.Drive(i), Node: ident.Node(i), Incarnation: 1}
	}
	for pg := range 8 { // every group begins at another drive
		g := cluster.PG{ID: ident.PG(pg), Profile: p, Epoch: 7}
		for i := range p.N() {
			g.Drives = append(g.Drives, ident.Drive((pg+i)%nodes+1))
		}
		v.PGs = append(v.PGs, g)
	}
	b := &cluster.Bucket{ID: ident.New(), Name: testBucket, State: cluster.BucketActive, Spans: []cluster.SpanRef{{Generation: 1, Group: 1}}}
	v.Buckets[b.Name], v.ByID[b.ID] = b, b
	s := &memSource{}
	s.v.Store(v)
	return s
}

// edit installs a changed copy of the view: nodes and drives are copied, the rest is shared.
func (s *memSource) edit(f func(*cluster.View)) {
	v := *s.v.Load()
	nodes, drives := map[ident.Node]*cluster.Node{}, map[ident.Drive]*cluster.Drive{}
	for id, n := range v.Nodes {
		c := *n
		nodes[id] = &c
	}
	for id, d := range v.Drives {
		c := *d
		drives[id] = &c
	}
	v.Nodes, v.Drives = nodes, drives
	f(&v)
	s.v.Store(&v)
}

func (s *memSource) View() *cluster.View { return s.v.Load() }

func (s *memSource) Sync(context.Context) (*cluster.View, error) {
	if err := s.err.Load(); err != nil {
		return nil, *err
	}
	return s.v.Load(), nil
}

func (s *memSource) Exec(context.Context, *cluster.Command) (cluster.CommandResult, error) {
	return cluster.CommandResult{}, oerr.E("test", oerr.NotImplemented, nil)
}

// memRouter is one metadata group without Raft: the real apply and the real queries over rows in memory.
type memRouter struct {
	source  *memSource
	command atomic.Pointer[func(*metadata.Command) error] // before apply; an error stops the command
	queried atomic.Pointer[func(*metadata.Query)]         // after the answer was made
	delay   struct{ command, query atomic.Int64 }         // nanoseconds
	n       struct{ commands, queries atomic.Int64 }
	mu      sync.Mutex
	state   memState
	m       *metadata.Machine
	index   uint64
}

func newMemRouter(s *memSource) *memRouter {
	return &memRouter{source: s, m: metadata.NewMachine(), state: memState{m: map[string][]byte{}}}
}

func (r *memRouter) createSpan(bucket ident.ID) {
	if _, err := r.CommandByID(context.Background(), bucket, &metadata.Command{Op: metadata.OpCreateSpan, Span: &metadata.Span{Bucket: bucket, Generation: 1}}); err != nil {
		panic(err)
	}
}

func (r *memRouter) onCommand(f func(*metadata.Command) error) { r.command.Store(&f) }
func (r *memRouter) afterQuery(f func(*metadata.Query))        { r.queried.Store(&f) }

func (r *memRouter) Command(ctx context.Context, bucket string, cmd *metadata.Command) (metadata.Result, error) {
	return r.CommandByID(ctx, r.source.View().Buckets[bucket].ID, cmd)
}

func (r *memRouter) CommandByID(ctx context.Context, bucket ident.ID, cmd *metadata.Command) (metadata.Result, error) {
	cmd.Bucket, cmd.Generation = bucket, 1
	return r.GroupCommand(ctx, 1, cmd)
}

func wait(ctx context.Context, ns int64) error {
	if ns == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(time.Duration(ns))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *memRouter) GroupCommand(ctx context.Context, _ ident.Group, cmd *metadata.Command) (metadata.Result, error) {
	r.n.commands.Add(1)
	cmd.RequestID = ident.New()
	if err := wait(ctx, r.delay.command.Load()); err != nil {
		return metadata.Result{}, oerr.E("test.command", oerr.Unavailable, err)
	}
	if err := cmd.Validate(); err != nil {
		return metadata.Result{}, err
	}
	if f := r.command.Load(); f != nil {
		if err := (*f)(cmd); err != nil {
			return metadata.Result{}, err
		}
	}
	r.mu.Lock()
	r.index++
	out, err := r.m.Apply(&r.state, 1, r.index, r.m.Stamp(cmd.Append(nil), time.Now().UnixMilli()))
	r.mu.Unlock()
	if err != nil {
		return metadata.Result{}, err
	}
	res, err := metadata.DecodeResult(out)
	if err != nil {
		return metadata.Result{}, err
	}
	if res.Code != 0 {
		return *res, oerr.Errorf("test.apply", oerr.Kind(res.Code-1), "%s", res.Detail)
	}
	return *res, nil
}

func (r *memRouter) Query(ctx context.Context, bucket string, q *metadata.Query) (*metadata.Answer, error) {
	return r.QueryByID(ctx, r.source.View().Buckets[bucket].ID, q)
}

func (r *memRouter) QueryByID(ctx context.Context, bucket ident.ID, q *metadata.Query) (*metadata.Answer, error) {
	q.Bucket, q.Generation = bucket, 1
	return r.GroupQuery(ctx, 1, q)
}

func (r *memRouter) GroupQuery(ctx context.Context, _ ident.Group, q *metadata.Query) (*metadata.Answer, error) {
	r.n.queries.Add(1)
	if err := wait(ctx, r.delay.query.Load()); err != nil {
		return nil, oerr.E("test.query", oerr.Unavailable, err)
	}
	r.mu.Lock()
	a, err := metadata.Ask(&r.state, q)
	r.mu.Unlock()
	if f := r.queried.Load(); f != nil {
		(*f)(q)
	}
	return a, err
}

// memState is host.ReadWriter over a map with its keys in order.
type memState struct {
	m    map[string][]byte
	keys []string
}

func (s *memState) Get(key []byte) ([]byte, bool, error) {
	v, ok := s.m[string(key)]
	return v, ok, nil
}

func (s *memState) Set(key, value []byte) error {
	k := string(key)
	if _, ok := s.m[k]; !ok {
		i, _ := slices.BinarySearch(s.keys, k)
		s.keys = slices.Insert(s.keys, i, k)
	}
	s.m[k] = bytes.Clone(value)
	return nil
}

func (s *memState) Delete(key []byte) error {
	k := string(key)
	if i, ok := slices.BinarySearch(s.keys, k); ok {
		s.keys = slices.Delete(s.keys, i, i+1)
		delete(s.m, k)
	}
	return nil
}

func (s *memState) DeleteRange(lower, upper []byte) error {
	for _, k := range s.within(lower, upper) {
		s.Delete([]byte(k))
	}
	return nil
}

func (s *memState) within(lower, upper []byte) []string {
	i, _ := slices.BinarySearch(s.keys, string(lower))
	j := len(s.keys)
	if upper != nil {
		j, _ = slices.BinarySearch(s.keys, string(upper))
	}
	return slices.Clone(s.keys[i:max(i, j)])
}

func (s *memState) Iter(lower, upper []byte) (host.Iterator, error) {
	return &memIter{s: s, keys: s.within(lower, upper), at: -1}, nil
}

type memIter struct {
	s    *memState
	keys []string
	at   int
}

func (i *memIter) Next() bool { i.at++; return i.at < len(i.keys) }
func (i *memIter) SeekGE(key []byte) bool {
	i.at, _ = slices.BinarySearch(i.keys, string(key))
	return i.at < len(i.keys)
}
func (i *memIter) Key() []byte   { return []byte(i.keys[i.at]) }
func (i *memIter) Value() []byte { return i.s.m[i.keys[i.at]] }
func (i *memIter) Close() error  { return nil }
