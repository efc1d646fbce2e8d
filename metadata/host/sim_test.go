package host

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	pb "go.etcd.io/raft/v3/raftpb"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// The simulation runs cores and stores of several nodes in one goroutine: network, clock, disk completions and crashes
// are choices of a seeded generator. A world is a set of nodes with one group; it lives through several schedules. A
// schedule is a run of random events, then everything is healed and the invariants are checked.
const simGroup = ident.Group(7)

func envInt(name string, def uint64) uint64 {
	if v, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return v
	}
	return def
}

func TestSimulatedSchedulesKeepTheInvariants(t *testing.T) {
	schedules := envInt("HOST_SIM_SCHEDULES", 10000)
	seed := envInt("HOST_SIM_SEED", 1)
	perWorld := uint64(25)
	if testing.Short() {
		schedules = min(schedules, 500)
	}
	var total simStats
	for done := uint64(0); done < schedules; done += perWorld {
		stats, err := runWorld(seed, int(perWorld))
		if err != nil {
			t.Fatalf("HOST_SIM_SEED=%d HOST_SIM_SCHEDULES=%d: %v", seed, perWorld, err)
		}
		total.add(stats)
		seed++
	}
	t.Logf("%d schedules from seed %d: %+v", schedules, envInt("HOST_SIM_SEED", 1), total)
	if schedules >= 500 && (total.Acked == 0 || total.Crashes == 0 || total.Snapshots == 0 || total.Reads == 0 || total.Members == 0 || total.Truncations == 0 || total.CAS == 0) {
		t.Fatalf("some kind of event never happened: %+v", total)
	}
}

type simStats struct {
	Events, Proposed, Acked, Unknown, CAS, Reads, Crashes, TornCrashes, Snapshots, Members, Truncations, Leaders, HashChecks int
}

func (s *simStats) add(o simStats) {
	s.Events += o.Events
	s.Proposed += o.Proposed
	s.Acked += o.Acked
	s.Unknown += o.Unknown
	s.CAS += o.CAS
	s.Reads += o.Reads
	s.Crashes += o.Crashes
	s.TornCrashes += o.TornCrashes
	s.Snapshots += o.Snapshots
	s.Members += o.Members
	s.Truncations += o.Truncations
	s.Leaders += o.Leaders
	s.HashChecks += o.HashChecks
}

// seededReader stands in for the system's randomness, which the engine draws election timeouts from.
type seededReader struct{ r *rand.Rand }

func (s seededReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.r.Uint32())
	}
	return len(p), nil
}

type simNode struct {
	w       *world
	id      ident.Node
	fs      *vfs.MemFS
	up      bool
	stores  *stores
	core    *core
	applier *applier
	recv    *receiver
	metrics metrics

	appends []*appendTask
	applies []*applyTask
	written []*appendTask // on the store, the core not told yet
	orders  []snapshotOrder
	durable hardState // newest that was synced
	// What was promised to others, over all crashes.
	votes        map[uint64]uint64 // term → candidate
	promisedTerm uint64
	acked        entryID // term of the leader, newest index acknowledged to it
	// A crash between two steps of a snapshot's install.
	crashAfterInstall bool
}

type simMsg struct {
	from, to ident.Node
	batch    []byte
}

type simOp struct {
	w       *waiter
	request uint64
	cas     bool
	key     string
	old     uint64
	read    bool
	floor   uint64 // read: everything acknowledged before
	node    ident.Node
}

type world struct {
	seed  uint64
	rng   *rand.Rand
	nodes []*simNode
	net   []simMsg
	cut   map[[2]ident.Node]bool
	ops   []*simOp
	stats simStats
	trace func(string, ...any)

	request  uint64
	acked    map[uint64]uint64 // request → index
	refused  map[uint64]bool   // definitely not proposed
	maxAcked uint64
	applied  map[uint64]uint64     // index → hash of the command
	casWon   map[string]uint64     // key/old → request
	leaders  map[uint64]ident.Node // by term
	lastWon  map[string]uint64     // key → newest value known
	err      error
}

func (w *world) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func newWorld(seed uint64) *world {
	return &world{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 77)), cut: map[[2]ident.Node]bool{}, acked: map[uint64]uint64{},
		refused: map[uint64]bool{}, applied: map[uint64]uint64{}, casWon: map[string]uint64{}, lastWon: map[string]uint64{}, leaders: map[uint64]ident.Node{},
	}
}

// TestASingleVoterAnswersNoReadBeforeItsOwnTerm: after a crash the written commit index may be older than what was
// acknowledged, and a group of one has nobody to ask.
func TestASingleVoterAnswersNoReadBeforeItsOwnTerm(t *testing.T) {
	w := newWorld(1)
	x := &simNode{w: w, id: 1, fs: vfs.NewCrashableMem(), votes: map[uint64]uint64{}}
	w.nodes = []*simNode{x}
	if err := x.open(); err != nil {
		t.Fatal(err)
	}
	defer func() { x.abandon() }()
	meta := &appliedMeta{entryID{bootstrapIndex, bootstrapTerm}, []Member{{Replica: replicaOf(1), Node: 1}}}
	if err := errors.Join(x.stores.create(simGroup, replicaOf(1), meta), x.start()); err != nil {
		t.Fatal(err)
	}
	w.settle(20)
	w.propose(x)
	w.quiet()
	if w.maxAcked == 0 {
		t.Fatal("nothing was acknowledged")
	}
	if err := x.crash(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		x.core.tick(0)
		x.drain()
		x.apply()
		x.drain()
		if x.replica().leader {
			break
		}
		x.write()
		x.complete()
		x.drain()
	}
	if !x.replica().leader {
		t.Fatal("no leader")
	}
	w.read(x)
	if w.err != nil {
		t.Fatal(w.err)
	}
	w.quiet()
	if w.err != nil || w.stats.Reads != 1 {
		t.Fatalf("%d reads answered: %v", w.stats.Reads, w.err)
	}
}

func runWorld(seed uint64, schedules int) (stats simStats, err error) {
	w := newWorld(seed)
	old := crand.Reader
	crand.Reader = seededReader{rand.New(rand.NewPCG(seed, 78))}
	defer func() { crand.Reader = old }()
	n := 3 + 2*w.rng.IntN(2)
	voters := 3
	switch {
	case n == 5 && w.rng.IntN(2) == 0:
		voters = 5
	case w.rng.IntN(4) == 0:
		voters = 1
	}
	var members []Member
	for i := range voters {
		members = append(members, Member{Replica: replicaOf(ident.Node(i + 1)), Node: ident.Node(i + 1)})
	}
	defer func() {
		for _, x := range w.nodes {
			if x.up {
				x.abandon()
			}
		}
	}()
	for i := range n {
		x := &simNode{w: w, id: ident.Node(i + 1), fs: vfs.NewCrashableMem(), votes: map[uint64]uint64{}}
		w.nodes = append(w.nodes, x)
		if err := x.open(); err != nil {
			return w.stats, err
		}
		var meta *appliedMeta
		if i < voters {
			meta = &appliedMeta{entryID: entryID{bootstrapIndex, bootstrapTerm}, members: members}
		}
		if err := x.stores.create(simGroup, replicaOf(x.id), meta); err != nil {
			return w.stats, err
		}
		if err := x.start(); err != nil {
			return w.stats, err
		}
	}
	for i := range schedules {
		if err := w.schedule(); err != nil {
			return w.stats, fmt.Errorf("schedule %d: %w", i, err)
		}
	}
	return w.stats, nil
}

func replicaOf(n ident.Node) uint64 { return uint64(n)<<32 | 1 }
func nodeOf(r uint64) ident.Node    { return ident.Node(r >> 32) }

func (x *simNode) open() error {
	cfg := &Config{
		Dir: "/d", FS: x.fs, Node: x.id, ElectionTicks: 6, HeartbeatTick: 1, HashTicks: -1, Sender: nopSender{}, Seed: x.w.seed + uint64(x.id),
		StateMachines: func(ident.Group) StateMachine { return &register{onApply: x.w.onApply} },
		Fatal:         func(err error) { panic(err) },
		Limits: Limits{
			LogMemTable: 64 << 10, StateMemTable: 64 << 10, EntryCache: 2 << 10, BlockCache: 64 << 10, MaxSizePerMsg: 256,
			MaxInflightMsgs: 4, MaxInflightBytes: 1 << 10, MaxCommittedBatch: 512, MaxUncommitted: 16 << 10, LogKeepEntries: 4, LogKeepBytes: 1 << 10,
			SnapshotChunk: 1 << 10, QueueBytes: 1 << 20,
		},
	}
	cfg.setDefaults()
	cfg.OnEvent = func(e Event) {
		switch e.Kind {
		case EventLeader:
			x.w.stats.Leaders++
			if other, ok := x.w.leaders[e.Term]; ok && other != x.id {
				x.w.failf("nodes %d and %d both lead in term %d", other, x.id, e.Term)
			}
			x.w.leaders[e.Term] = x.id
		case EventStopped:
			if e.Text != "removed from the group" {
				x.w.failf("node %d: replica stopped: %s", x.id, e.Text)
			}
		}
		if x.w.trace != nil {
			x.w.trace("node %d: %s term %d index %d %s", x.id, e.Kind, e.Term, e.Index, e.Text)
		}
	}
	var err error
	x.stores, err = openStores(cfg, storeHooks{fatal: cfg.Fatal})
	if err != nil {
		return err
	}
	x.core = newCore(cfg, &x.metrics)
	x.applier = &applier{state: x.stores.state, metrics: &x.metrics, hash: func(r *replica, index uint64, it *pebble.Iterator) {
		sum, err := hashRows(it, nil)
		if err != nil {
			x.w.failf("hash: %v", err)
		}
		x.core.hashComputed(r, hashAt{index, sum})
	}}
	x.recv = &receiver{fs: x.fs, dir: x.stores.stageDir, state: x.stores.state, now: func() int64 { return 0 }}
	x.up = true
	return nil
}

// start brings the replica to life from the stores, and checks what may not regress.
func (x *simNode) start() error {
	ids, err := x.stores.groups()
	if err != nil {
		return err
	}
	id, ok := ids[simGroup]
	if !ok || id.replica != replicaOf(x.id) {
		return fmt.Errorf("node %d: identity row is %+v", x.id, id)
	}
	log, err := x.stores.log.load(simGroup)
	if err != nil {
		return err
	}
	if d := x.durable; log.hs.term < d.term || (log.hs.term == d.term && d.vote != 0 && log.hs.vote != d.vote) || log.hs.commit < d.commit {
		return fmt.Errorf("node %d: hard state went back from %+v to %+v", x.id, d, log.hs)
	}
	if log.hs.term < x.promisedTerm {
		return fmt.Errorf("node %d: answered in term %d, came back in term %d", x.id, x.promisedTerm, log.hs.term)
	}
	meta, err := x.stores.state.meta(simGroup)
	if err != nil {
		return err
	}
	if a := x.acked; log.hs.term == a.term && max(log.last.index, meta.index) < a.index {
		return fmt.Errorf("node %d: acknowledged entry %d in term %d, came back with %d", x.id, a.index, a.term, log.last.index)
	}
	r, err := x.core.start(simGroup, id.replica, log, meta)
	if err != nil {
		return err
	}
	r.ap.meta = meta
	if r.applied.index > r.hs.commit || r.hs.commit > r.log.last.index {
		return fmt.Errorf("node %d: applied %d, commit %d, last %d", x.id, r.applied.index, r.hs.commit, r.log.last.index)
	}
	return nil
}

func (x *simNode) replica() *replica { return x.core.replicas[simGroup] }

func (x *simNode) abandon() {
	x.up = false
	x.recv.close()
	_ = errors.Join(x.stores.state.db.Close(), x.stores.log.db.Close())
	x.stores.cache.Unref()
}

// crash drops what was not synced, or keeps a random part of it, and starts again.
func (x *simNode) crash() error {
	w := x.w
	w.stats.Crashes++
	cfg := vfs.CrashCloneCfg{}
	if w.rng.IntN(3) == 0 {
		w.stats.TornCrashes++
		cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(100), RNG: rand.New(rand.NewPCG(w.rng.Uint64(), 1))}
	}
	clone := x.fs.CrashClone(cfg)
	x.abandon()
	for _, op := range w.ops {
		if op.node == x.id {
			op.w.done(Applied{}, oerr.Errorf("sim", oerr.OutcomeUnknown, "node %d crashed", x.id))
		}
	}
	x.fs = clone
	x.appends, x.applies, x.written, x.orders, x.crashAfterInstall = nil, nil, nil, nil, false
	if err := x.open(); err != nil {
		return err
	}
	return x.start()
}

// drain takes what the core wants.
func (x *simNode) drain() {
	for range 1000 {
		out := x.core.ready()
		if out.empty() {
			return
		}
		x.appends = append(x.appends, out.appends...)
		x.applies = append(x.applies, out.applies...)
		x.orders = append(x.orders, out.snapshots...)
		for i := range out.msgs {
			m := &out.msgs[i]
			if m.m != nil {
				x.promise(m.m)
			}
			b := appendBatchHeader(nil, x.id, 0)
			if m.m == nil {
				b = appendHashReport(b, m.group, m.hash)
			} else {
				b = appendMessage(b, m.group, m.m, m.trunc)
			}
			x.w.net = append(x.w.net, simMsg{x.id, m.node, b})
		}
	}
	x.w.failf("node %d: the core never comes to rest", x.id)
}

// promise notes what a message tells others for good.
func (x *simNode) promise(m *pb.Message) {
	switch m.GetType() {
	case pb.MsgVoteResp:
		if m.GetReject() {
			return
		}
		if other, ok := x.votes[m.GetTerm()]; ok && other != m.GetTo() {
			x.w.failf("node %d voted for %#x and for %#x in term %d", x.id, other, m.GetTo(), m.GetTerm())
		}
		x.votes[m.GetTerm()] = m.GetTo()
	case pb.MsgAppResp:
		if m.GetReject() {
			return
		}
		if m.GetTerm() > x.acked.term {
			x.acked = entryID{0, m.GetTerm()}
		}
		if m.GetTerm() == x.acked.term {
			x.acked.index = max(x.acked.index, m.GetIndex())
		}
	default:
		return
	}
	x.promisedTerm = max(x.promisedTerm, m.GetTerm())
}

func (x *simNode) write() {
	ts := x.appends
	x.appends = nil
	if len(ts) == 0 {
		return
	}
	_, _, err := x.stores.log.write(ts)
	if err != nil {
		x.w.failf("node %d: %v", x.id, err)
		return
	}
	sync := false
	for _, t := range ts {
		sync = sync || t.sync
		if t.writeHS && sync {
			x.durable = t.hs
		}
	}
	x.written = append(x.written, ts...)
}

func (x *simNode) complete() {
	ts := x.written
	x.written = nil
	x.core.appendDone(ts)
}

func (x *simNode) apply() {
	ts := x.applies
	x.applies = nil
	if len(ts) == 0 {
		return
	}
	if err := x.applier.run(ts); err != nil {
		x.w.failf("node %d: %v", x.id, err)
		return
	}
	for _, t := range ts {
		if t.install != nil {
			x.w.stats.Snapshots++
			if x.w.rng.IntN(4) == 0 {
				x.crashAfterInstall = true
			}
		}
	}
	x.core.applyDone(ts)
}

// streamOne sends one snapshot, chunk by chunk; it may break off.
func (x *simNode) streamOne(lossy bool) {
	if len(x.orders) == 0 {
		return
	}
	o := x.orders[0]
	x.orders = x.orders[1:]
	x.core.snapshotSent(o.r, o.to, x.stream(o, lossy))
}

func (x *simNode) stream(o snapshotOrder, lossy bool) error {
	w := x.w
	if o.node == 0 {
		return errors.New("no node")
	}
	to := w.nodes[o.node-1]
	if !to.up || w.cut[[2]ident.Node{x.id, to.id}] {
		return errors.New("unreachable")
	}
	src, err := newSnapshotSource(x.stores.state, chunkInfo{
		stream: ident.ID{byte(w.rng.Uint32()), byte(w.rng.Uint32()), byte(w.rng.Uint32()), 1}, group: simGroup, to: o.to, from: o.r.id, node: x.id, term: o.term,
	}, 1<<10)
	if err != nil {
		return err
	}
	defer src.close()
	for {
		b, err := src.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if lossy && w.rng.IntN(8) == 0 {
			to.recv.close()
			return errors.New("broke off")
		}
		st, err := to.recv.take(b)
		if err != nil {
			return err
		}
		if st != nil {
			to.core.snapshotStaged(st)
			to.drain()
			to.recv.release(st)
		}
	}
}

func (w *world) onApply(_ ident.Group, index uint64, data []byte) {
	h := fnv.New64a()
	h.Write(data)
	if old, ok := w.applied[index]; ok && old != h.Sum64() {
		w.failf("two different commands were applied at index %d", index)
	}
	w.applied[index] = h.Sum64()
}

type nopSender struct{}

func (nopSender) SendRaft(ident.Node, []byte) bool { return true }
func (nopSender) SendSnapshot(_ context.Context, _ ident.Node, _ func() ([]byte, error)) error {
	return errors.New("not here")
}

func (w *world) leader() *simNode {
	var best *simNode
	for _, x := range w.nodes {
		if r := x.replica(); x.up && r != nil && r.leader && (best == nil || r.term > best.replica().term) {
			best = x
		}
	}
	return best
}

func (w *world) pick() *simNode { return w.nodes[w.rng.IntN(len(w.nodes))] }

// schedule runs random events, heals everything and checks.
func (w *world) schedule() error {
	faults := w.rng.IntN(4) // 0: none, 1: network, 2: crashes, 3: both
	network, crashes := faults&1 != 0, faults&2 != 0
	if network && w.rng.IntN(2) == 0 {
		w.isolate()
	}
	for range 30 + w.rng.IntN(60) {
		w.stats.Events++
		w.event(network, crashes)
		if w.err != nil {
			return w.err
		}
	}
	return w.heal(crashes)
}

// isolate cuts one node off for long: the leader, or one that will need a snapshot.
func (w *world) isolate() {
	x := w.pick()
	if l := w.leader(); l != nil && w.rng.IntN(2) == 0 {
		x = l
	}
	for _, y := range w.nodes {
		w.cut[[2]ident.Node{x.id, y.id}], w.cut[[2]ident.Node{y.id, x.id}] = true, true
	}
	if w.rng.IntN(2) == 0 {
		return
	}
	// The rest goes on and cuts its logs; what the one alone still proposes stays behind.
	for range w.rng.IntN(4) {
		w.propose(x)
	}
	if w.rng.IntN(2) == 0 { // it stands still meanwhile, and believes what it believed
		for range 14 {
			for _, y := range w.nodes {
				if y != x {
					y.core.tick(0)
				}
			}
			w.quiet()
		}
	} else {
		w.settle(w.rng.IntN(14))
	}
	for range 4 + w.rng.IntN(6) {
		if l := w.leader(); l != nil && l != x {
			w.propose(l)
		}
		w.quiet()
	}
	for _, y := range w.nodes {
		w.flushAndTruncate(y)
		y.drain()
	}
	w.quiet()
	w.read(x)
	w.quiet()
}

func (w *world) read(x *simNode) {
	op := &simOp{w: newWaiter(), node: x.id, read: true, floor: w.maxAcked}
	w.ops = append(w.ops, op)
	x.core.readIndex(simGroup, op.w)
	x.drain()
	w.collect()
}

// crashAndRead reads at every step of the way back: a leader that has not committed in its term knows too little.
func (w *world) crashAndRead(x *simNode) error {
	if err := x.crash(); err != nil || w.rng.IntN(2) == 0 {
		return err
	}
	for range 12 {
		x.core.tick(0)
		x.drain()
		x.apply()
		x.drain()
		x.write()
		x.complete()
		x.drain()
		w.read(x)
	}
	return nil
}

func (w *world) propose(x *simNode) {
	w.request++
	op := &simOp{w: newWaiter(), node: x.id, request: w.request}
	w.ops = append(w.ops, op)
	x.core.propose(simGroup, []proposal{{command(opSet, op.request, 0, op.request, fmt.Sprint("s", w.rng.IntN(5))), op.w}})
	w.stats.Proposed++
	x.drain()
}

func (w *world) event(network, crashes bool) {
	x := w.pick()
	if x.crashAfterInstall {
		if err := x.crash(); err != nil {
			w.failf("crash after install: %v", err)
		}
	}
	switch p := w.rng.IntN(100); {
	case p < 14:
		for _, x := range w.nodes {
			x.core.tick(0)
		}
	case p < 18:
		x.core.tick(0)
	case p < 48:
		for range 1 + w.rng.IntN(6) {
			w.deliver(network)
		}
	case p < 62:
		x.write()
		if w.rng.IntN(4) > 0 {
			x.complete()
		}
	case p < 72:
		x.apply()
	case p < 84:
		w.client()
	case p < 87:
		x.streamOne(network)
	case p < 90:
		w.flushAndTruncate(x)
	case p < 91 && network:
		w.partition()
	case p < 93 && crashes:
		if err := w.crashAndRead(x); err != nil {
			w.failf("crash: %v", err)
		}
	case p < 96:
		w.changeMembers()
	case p < 97:
		w.transfer()
	case p < 98:
		if l := w.leader(); l != nil && l.replica().isReady() {
			w.stats.HashChecks++
			l.core.checkHashes(l.replica())
		}
	default:
		w.settle(1 + w.rng.IntN(9))
	}
	for _, x := range w.nodes {
		x.drain()
	}
	w.collect()
}

func (w *world) deliver(network bool) {
	if len(w.net) == 0 {
		return
	}
	i := 0
	if network {
		i = w.rng.IntN(len(w.net))
	}
	m := w.net[i]
	if !network || w.rng.IntN(20) > 0 { // else: delivered twice
		w.net = slices.Delete(w.net, i, i+1)
	}
	if network && w.rng.IntN(12) == 0 || w.cut[[2]ident.Node{m.from, m.to}] {
		return
	}
	to := w.nodes[m.to-1]
	if err := to.core.stepBatch(slices.Clone(m.batch)); err != nil {
		w.failf("node %d: %v", m.to, err)
	}
	to.drain()
}

func (w *world) client() {
	x := w.pick()
	if l := w.leader(); l != nil && w.rng.IntN(4) > 0 {
		x = l
	}
	op := &simOp{w: newWaiter(), node: x.id}
	switch w.rng.IntN(3) {
	case 0:
		w.read(x)
		return
	case 1:
		w.request++
		op.request, op.cas, op.key, op.old = w.request, true, fmt.Sprint("c", w.rng.IntN(3)), 0
		if w.rng.IntN(3) > 0 {
			op.old = w.lastWon[op.key]
		}
		x.core.propose(simGroup, []proposal{{command(opCAS, op.request, op.old, op.request, op.key), op.w}})
		w.stats.Proposed++
	default:
		for range 1 + w.rng.IntN(3) {
			w.propose(x)
		}
		return
	}
	w.ops = append(w.ops, op)
}

// collect takes outcomes.
func (w *world) collect() {
	w.ops = slices.DeleteFunc(w.ops, func(op *simOp) bool {
		select {
		case o := <-op.w.ch:
			w.outcome(op, o)
			return true
		default:
			return false
		}
	})
}

func (w *world) outcome(op *simOp, o outcome) {
	switch {
	case o.err == nil && op.read:
		w.stats.Reads++
		if o.applied.Index < op.floor {
			w.failf("a read on node %d saw index %d, but %d was acknowledged before it began", op.node, o.applied.Index, op.floor)
		}
	case op.read:
	case o.err == nil:
		w.stats.Acked++
		w.acked[op.request] = o.applied.Index
		w.maxAcked = max(w.maxAcked, o.applied.Index)
		if op.cas && o.applied.Data[0] == 1 {
			w.stats.CAS++
			k := fmt.Sprintf("%s/%d", op.key, op.old)
			if other, won := w.casWon[k]; won {
				w.failf("requests %d and %d both won the compare-and-set %s", other, op.request, k)
			}
			w.casWon[k] = op.request
			w.lastWon[op.key] = op.request
		}
	case oerr.KindOf(o.err) == oerr.OutcomeUnknown:
		w.stats.Unknown++
	default:
		w.refused[op.request] = true
	}
}

func (w *world) flushAndTruncate(x *simNode) {
	if w.rng.IntN(3) > 0 {
		if err := x.stores.state.flush(); err != nil {
			w.failf("flush: %v", err)
			return
		}
	}
	d, err := x.stores.state.durable([]ident.Group{simGroup})
	if err != nil {
		w.failf("durable: %v", err)
		return
	}
	before := x.metrics.truncations.Load()
	x.core.truncate(d)
	w.stats.Truncations += int(x.metrics.truncations.Load() - before)
}

func (w *world) partition() {
	if len(w.cut) > 0 && w.rng.IntN(2) == 0 {
		clear(w.cut)
		return
	}
	side := w.rng.IntN(1 << len(w.nodes))
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			if side>>a.id&1 != side>>b.id&1 {
				w.cut[[2]ident.Node{a.id, b.id}] = true
				if w.rng.IntN(6) > 0 { // sometimes in one direction only
					w.cut[[2]ident.Node{b.id, a.id}] = true
				}
			}
		}
	}
}

// changeMembers adds the nodes that are not members yet, as learners and then as voters.
func (w *world) changeMembers() {
	l := w.leader()
	if l == nil {
		return
	}
	x := w.nodes[1+w.rng.IntN(len(w.nodes)-1)]
	wt := newWaiter()
	m := l.replica().member(replicaOf(x.id))
	switch {
	case m == nil:
		l.core.changeMember(simGroup, pb.ConfChangeAddLearnerNode, Member{Replica: replicaOf(x.id), Node: x.id}, wt)
	case m.Learner:
		l.core.changeMember(simGroup, pb.ConfChangeAddNode, Member{Replica: replicaOf(x.id)}, wt)
	default:
		return
	}
	w.stats.Members++
}

func (w *world) transfer() {
	if l := w.leader(); l != nil {
		l.core.transfer(simGroup, replicaOf(w.pick().id), newWaiter())
	}
}

// settle lets every node do all it wants for some rounds without faults.
func (w *world) settle(rounds int) {
	for range rounds {
		for _, x := range w.nodes {
			x.core.tick(0)
		}
		w.quiet()
	}
}

func (w *world) quiet() {
	for range 200 {
		idle := len(w.net) == 0
		for len(w.net) > 0 {
			w.deliver(false)
		}
		for _, x := range w.nodes {
			x.drain()
			idle = idle && len(x.appends)+len(x.applies)+len(x.written)+len(x.orders) == 0
			if x.crashAfterInstall {
				continue // stopped in the middle of an install
			}
			x.write()
			x.complete()
			x.apply()
			for len(x.orders) > 0 {
				x.streamOne(false)
			}
			x.drain()
		}
		w.collect()
		if idle && len(w.net) == 0 || w.err != nil {
			return
		}
	}
}

// heal ends all faults, waits until one leader has everybody up to date, and checks the invariants.
func (w *world) heal(crashes bool) error {
	clear(w.cut)
	for round := 0; ; round++ {
		w.settle(1)
		for _, x := range w.nodes {
			if x.crashAfterInstall && crashes && round < 20 {
				if err := x.crash(); err != nil {
					return err
				}
			}
			x.crashAfterInstall = false
		}
		if w.err != nil {
			return w.err
		}
		if w.converged() {
			break
		}
		if round > 120 {
			return fmt.Errorf("not converged after %d rounds: %s", round, w.describe())
		}
	}
	for _, op := range w.ops { // nobody may be left without an outcome
		if op.read && w.leader().id != op.node {
			continue
		}
		return fmt.Errorf("request %d (read %t) on node %d never got an outcome", op.request, op.read, op.node)
	}
	return w.check()
}

func (w *world) converged() bool {
	l := w.leader()
	if l == nil || !l.replica().isReady() {
		return false
	}
	lr := l.replica()
	for _, m := range lr.members {
		r := w.nodes[nodeOf(m.Replica)-1].replica()
		if r.applied.index != lr.hs.commit || r.lead != lr.id || r.applied.index != lr.log.last.index {
			return false
		}
	}
	return true
}

func (w *world) describe() string {
	s := ""
	for _, x := range w.nodes {
		r := x.replica()
		s += fmt.Sprintf("\n  node %d: term %d lead %#x leader %t applied %d commit %d last %d trunc %d held %d members %d", x.id, r.term, r.lead, r.leader,
			r.applied.index, r.hs.commit, r.log.last.index, r.log.trunc.index, len(r.held), len(r.members))
	}
	return s
}

// check compares the members' rows and looks up every acknowledged request.
func (w *world) check() error {
	l := w.leader()
	var first uint64
	for i, m := range l.replica().members {
		x := w.nodes[nodeOf(m.Replica)-1]
		it, err := x.stores.state.rows(simGroup, false)
		if err != nil {
			return err
		}
		sum, err := hashRows(it, nil)
		if err != nil {
			return err
		}
		if i == 0 {
			first = sum
		} else if sum != first {
			return fmt.Errorf("nodes %d and %d differ at applied index %d", nodeOf(l.replica().members[0].Replica), x.id, x.replica().applied.index)
		}
	}
	rd := newReader(l.stores.state.db, simGroup)
	defer rd.release()
	for req, index := range w.acked {
		v, ok, err := rd.Get(requestKey(req))
		if err != nil || !ok {
			return fmt.Errorf("request %d was acknowledged at index %d and is gone: %v", req, index, err)
		}
		if got := beUint(v); got != index {
			return fmt.Errorf("request %d was acknowledged at index %d, applied at %d", req, index, got)
		}
	}
	for req := range w.refused {
		if _, ok, err := rd.Get(requestKey(req)); err != nil || ok {
			return fmt.Errorf("request %d was refused and is applied: %v", req, err)
		}
	}
	return rd.release()
}

func beUint(b []byte) uint64 {
	v := uint64(0)
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}
