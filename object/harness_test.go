package object

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"hash"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"objstore/cluster"
	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/metadata/host"
	"objstore/shard"
	"objstore/shard/shardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testBucket = "bucket"

// harness is an engine over shards in memory and the real state machine of a metadata group.
type harness struct {
	t      testing.TB
	e      *Engine
	nodes  *shardtest.Cluster
	pool   *shard.Pool
	router *memRouter
	source *memSource
	events *eventLog
	bytes  struct {
		sync.Mutex
		m map[string]int
	}
	dead sync.Map // ident.Node → bool: the liveness hint
}

// newHarness has one node with one drive for each shard of p, and spare further ones.
func newHarness(t testing.TB, p erasure.Profile, spare int, tune ...func(*Config)) *harness {
	h := &harness{t: t, nodes: shardtest.NewCluster(p.N() + spare), pool: shard.NewPool(192 << 20), events: &eventLog{}}
	h.bytes.m = map[string]int{}
	h.source = newMemSource(p, p.N()+spare)
	h.router = newMemRouter(h.source)
	h.router.createSpan(h.source.v.Load().Buckets[testBucket].ID)
	const patient = 10 * time.Second // nothing healthy is given up, however loaded the machine
	cfg := Config{Node: 1, StartID: ident.New(), GraceMin: patient, GraceCold: patient, GraceMax: patient, Laggard: patient, WriteIdle: 2 * patient,
		LateMax: patient, HedgeMin: patient, HedgeCold: patient, HedgeMax: patient, ReadTimeout: 2 * patient, MetadataTimeout: patient, AdmitTimeout: 2 * patient}
	for _, f := range tune {
		f(&cfg)
	}
	var err error
	h.e, err = New(cfg, Deps{Router: h.router, Cluster: h.source, Dialer: h.nodes, Pool: h.pool, Buckets: nopBuckets{},
		Alive:      func(n ident.Node) bool { _, dead := h.dead.Load(n); return !dead },
		CountShard: h.count, OnEvent: h.events.add})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	return h
}

// impatient gives up early what does not answer, which on a loaded machine may be something healthy.
func impatient(c *Config) {
	c.GraceMin, c.GraceCold, c.GraceMax, c.Laggard = 5*time.Millisecond, 60*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
	c.LateMax, c.HedgeMin, c.HedgeCold, c.HedgeMax = 300*time.Millisecond, 5*time.Millisecond, 30*time.Millisecond, 200*time.Millisecond
}

func (h *harness) count(transport, op string, n int) {
	h.bytes.Lock()
	defer h.bytes.Unlock()
	h.bytes.m[transport+" "+op] += n
}

// close ends the engine and checks that nothing is left behind.
func (h *harness) close() {
	h.nodes.SetFault(nil)
	h.eventually("no blob in flight and no buffer in use", func() bool { return h.e.InFlight() == 0 })
	h.e.Close()
	h.e.Close()
	h.eventually("buffers are back", func() bool { return h.pool.InUse() == 0 })
	h.eventually("no writer is open", func() bool { return h.nodes.Writers() == 0 })
	h.pool.Close()
}

func (h *harness) eventually(what string, f func() bool) {
	h.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			h.t.Fatalf("not within 10 s: %s; %d bytes in use, %d blobs in flight, %d writers", what, h.pool.InUse(), h.e.InFlight(), h.nodes.Writers())
		}
		<-time.After(time.Millisecond)
	}
}

func (h *harness) put(key string, body []byte) PutResult {
	h.t.Helper()
	res, err := h.e.Put(h.t.Context(), h.request(key, body))
	if err != nil {
		h.t.Fatalf("put of %d bytes: %v", len(body), err)
	}
	return res
}

func (h *harness) request(key string, body []byte) *PutRequest {
	return &PutRequest{Bucket: testBucket, Key: key, Body: bodyOf(body)}
}

// bodyOf is a body with an MD5 ETag, as the edge makes it.
func bodyOf(b []byte) Body {
	d := md5.New()
	return Body{Reader: bytes.NewReader(b), Length: int64(len(b)), Digests: []hash.Hash{d},
		Seal: func() (Sealed, error) { return Sealed{ETag: hex.EncodeToString(d.Sum(nil))}, nil }}
}

func etagOf(b []byte) string { s := md5.Sum(b); return hex.EncodeToString(s[:]) }

func (h *harness) open(key string) *Object {
	h.t.Helper()
	o, err := h.e.Open(h.t.Context(), testBucket, key, true)
	if err != nil {
		h.t.Fatalf("open %q: %v", key, err)
	}
	return o
}

func (h *harness) read(key string, off, n int64) ([]byte, error) {
	h.t.Helper()
	b := bytes.NewBuffer(make([]byte, 0, max(0, min(n, 64<<20))))
	err := h.open(key).WriteRange(h.t.Context(), b, off, n)
	return b.Bytes(), err
}

// expect reads a whole object back.
func (h *harness) expect(key string, want []byte) {
	h.t.Helper()
	got, err := h.read(key, 0, int64(len(want)))
	if err != nil {
		h.t.Fatalf("read %q of %d bytes: %v", key, len(want), err)
	}
	if !bytes.Equal(got, want) {
		h.t.Fatalf("read %q: %d bytes came back wrong (expected %d)", key, len(got), len(want))
	}
}

func (h *harness) expectNoKey(key string) {
	h.t.Helper()
	if _, err := h.e.Open(h.t.Context(), testBucket, key, true); !oerr.Is(err, oerr.NoSuchKey) {
		h.t.Fatalf("open %q: %v, expected %s", key, err, oerr.NoSuchKey)
	}
}

// blob returns the blob of a single-part object, as the group has it now.
func (h *harness) blob(key string) *metadata.Blob {
	h.t.Helper()
	return h.open(key).Parts[0].Blob
}

// ref names one shard of a blob.
func (h *harness) ref(b *metadata.Blob, i int) shard.Ref {
	v := h.source.View()
	d := v.PGs[b.PG].Drives[i]
	return shard.Ref{Drive: d, Incarnation: v.Drives[d].Incarnation, Epoch: v.Epoch, Blob: b.ID, Index: uint8(i)}
}

func (h *harness) mem(b *metadata.Blob, i int) *shardtest.Mem {
	return h.nodes.Node(h.source.View().Drives[h.ref(b, i).Drive].Node)
}

// pending is the number of repair rows.
func (h *harness) pending() int64 {
	ans, err := h.router.GroupQuery(h.t.Context(), 1, &metadata.Query{Op: metadata.QueryRepairCount})
	if err != nil {
		h.t.Fatal(err)
	}
	return ans.Pending
}

func randomBody(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(n)})
	rng.Read(b)
	return b
}

type eventLog struct {
	mu sync.Mutex
	n  map[EventKind]int
}

func (l *eventLog) add(ev Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == nil {
		l.n = map[EventKind]int{}
	}
	l.n[ev.Kind]++
}

func (l *eventLog) count(k EventKind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n[k]
}

type nopBuckets struct{}

func (nopBuckets) Create(context.Context, string, string) error { return nil }
func (nopBuckets) Delete(context.Context, string) error         { return nil }

// memSource is a fixed view; Sync may install a newer one.
type memSource struct {
	v    atomic.Pointer[cluster.View]
	next atomic.Pointer[cluster.View]
	err  atomic.Pointer[error]
}

func newMemSource(p erasure.Profile, nodes int) *memSource {
	v := &cluster.View{Index: 1, Formed: true, Profile: p, Epoch: 7, Nodes: map[ident.Node]*cluster.Node{}, Drives: map[ident.Drive]*cluster.Drive{},
		Buckets: map[string]*cluster.Bucket{}, ByID: map[ident.ID]*cluster.Bucket{}}
	for i := 1; i <= nodes; i++ {
		v.Nodes[ident.Node(i)] = &cluster.Node{ID: ident.Node(i)}
		v.Drives[ident.Drive(i)] = &cluster.Drive{ID: ident.Drive(i), Node: ident.Node(i), Incarnation: 1}
	}
	for pg := range 16 { // every group begins at another drive
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

func (s *memSource) View() *cluster.View { return s.v.Load() }

func (s *memSource) Sync(context.Context) (*cluster.View, error) {
	if err := s.err.Load(); err != nil {
		return nil, *err
	}
	if v := s.next.Swap(nil); v != nil {
		s.v.Store(v)
	}
	return s.v.Load(), nil
}

func (s *memSource) Exec(context.Context, *cluster.Command) (cluster.CommandResult, error) {
	return cluster.CommandResult{}, oerr.E("test", oerr.NotImplemented, nil)
}

// memRouter is one metadata group without Raft: the real apply and the real queries over rows in memory. Every command
// and answer goes through its encoding.
type memRouter struct {
	source *memSource
	hook   atomic.Pointer[func(*metadata.Command) error] // before apply; an error stops the command
	after  atomic.Pointer[func(*metadata.Command) error] // after apply: the outcome is lost
	mu     sync.Mutex
	state  memState
	m      *metadata.Machine
	index  uint64
	now    int64
}

func newMemRouter(s *memSource) *memRouter {
	return &memRouter{source: s, m: metadata.NewMachine(), state: memState{m: map[string][]byte{}}, now: 1_700_000_000_000}
}

func (r *memRouter) createSpan(bucket ident.ID) {
	if _, err := r.CommandByID(context.Background(), bucket, &metadata.Command{Op: metadata.OpCreateSpan, Span: &metadata.Span{Bucket: bucket, Generation: 1}}); err != nil {
		panic(err)
	}
}

func (r *memRouter) onCommand(f func(*metadata.Command) error)    { r.hook.Store(&f) }
func (r *memRouter) afterCommand(f func(*metadata.Command) error) { r.after.Store(&f) }

func (r *memRouter) Command(ctx context.Context, bucket string, cmd *metadata.Command) (metadata.Result, error) {
	b := r.source.View().Buckets[bucket]
	if b == nil {
		return metadata.Result{}, oerr.Errorf("test", oerr.NoSuchBucket, "no bucket %q", bucket)
	}
	return r.CommandByID(ctx, b.ID, cmd)
}

func (r *memRouter) CommandByID(_ context.Context, bucket ident.ID, cmd *metadata.Command) (metadata.Result, error) {
	cmd.RequestID, cmd.Bucket, cmd.Generation = ident.New(), bucket, 1
	return r.GroupCommand(context.Background(), 1, cmd)
}

func (r *memRouter) GroupCommand(_ context.Context, _ ident.Group, cmd *metadata.Command) (metadata.Result, error) {
	if f := r.hook.Load(); f != nil {
		if err := (*f)(cmd); err != nil {
			return metadata.Result{}, err
		}
	}
	r.mu.Lock()
	r.index++
	r.now++
	out, err := r.m.Apply(&r.state, 1, r.index, r.m.Stamp(cmd.Append(nil), r.now))
	r.mu.Unlock()
	if err != nil {
		return metadata.Result{}, err
	}
	if f := r.after.Load(); f != nil {
		if err := (*f)(cmd); err != nil {
			return metadata.Result{}, err
		}
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
	b := r.source.View().Buckets[bucket]
	if b == nil {
		return nil, oerr.Errorf("test", oerr.NoSuchBucket, "no bucket %q", bucket)
	}
	return r.QueryByID(ctx, b.ID, q)
}

func (r *memRouter) QueryByID(ctx context.Context, bucket ident.ID, q *metadata.Query) (*metadata.Answer, error) {
	q.Bucket, q.Generation = bucket, 1
	return r.GroupQuery(ctx, 1, q)
}

func (r *memRouter) GroupQuery(_ context.Context, _ ident.Group, q *metadata.Query) (*metadata.Answer, error) {
	r.mu.Lock()
	a, err := metadata.Ask(&r.state, q)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return metadata.DecodeAnswer(a.Append(nil))
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
