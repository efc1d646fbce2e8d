package host

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

type progress = tracker.Progress

// core is the deterministic part of a host: inputs go in as method calls, what is to be done about them comes out of
// ready. It has no goroutine, no clock and no network, and it waits for nothing. It reads the log store, through raft.
type core struct {
	cfg      *Config
	rng      *rand.Rand
	replicas map[ident.Group]*replica
	order    []*replica // by group, so that no outcome depends on map order
	dirty    []*replica
	nonce    uint64
	nowMS    int64
	clock    clockRule
	metrics  *metrics
	onEvent  func(Event)

	out   output
	arena []byte // proposals being wrapped; raft copies them
}

// output is what the driver has to do. Messages may go out at once: raft holds back what needs the log first.
type output struct {
	msgs      []outMsg
	appends   []*appendTask // in order; appendDone afterwards
	applies   []*applyTask  // in order; applyDone afterwards
	snapshots []snapshotOrder
}

func (o *output) empty() bool {
	return len(o.msgs)+len(o.appends)+len(o.applies)+len(o.snapshots) == 0
}

// outMsg is a message for a node: a raft message or a hash report.
type outMsg struct {
	node  ident.Node
	group ident.Group
	r     *replica
	m     *pb.Message // nil: report
	trunc uint64
	hash  hashReport
}

// snapshotOrder asks the driver to stream the group's state to a replica.
type snapshotOrder struct {
	r    *replica
	to   uint64
	node ident.Node
	term uint64
}

// proposal is one entry to propose.
type proposal struct {
	data []byte
	w    *waiter
}

func newCore(cfg *Config, m *metrics) *core {
	seed := cfg.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	rng := rand.New(rand.NewPCG(seed, uint64(cfg.Node)))
	return &core{
		cfg: cfg, rng: rng, replicas: make(map[ident.Group]*replica), nonce: rng.Uint64(), metrics: m, onEvent: cfg.OnEvent,
		clock: clockRule{peers: make(map[ident.Node]clockSample)},
	}
}

func (c *core) nextNonce() uint64 {
	c.nonce++
	if c.nonce == 0 {
		c.nonce++
	}
	return c.nonce
}

// start brings a replica to life from what its stores hold. It decides what the log really is (PROTOCOLS G).
func (c *core) start(g ident.Group, id uint64, log *groupLog, meta appliedMeta) (*replica, error) {
	r := &replica{
		group: g, id: id, log: log, sm: c.cfg.StateMachines(g), nodes: make(map[uint64]ident.Node),
		reports: make(map[uint64]map[uint64]uint64), sending: make(map[uint64]bool),
	}
	r.shared.mu.waiters = make(map[uint64]*waiter)
	r.applied = meta.entryID
	r.setMembers(meta.members)
	log.applied = func() (entryID, []Member) { return r.applied, r.members }
	log.conf = confState(meta.members)
	r.shared.applied.Store(meta.index)
	reset, why := reconcile(log, meta.entryID)
	if reset {
		// The store still has the old log: it goes before the first new entry is written.
		c.out.appends = append(c.out.appends, &appendTask{r: r, reset: &meta.entryID, hs: log.hs, writeHS: true, sync: true})
	}
	if why != "" {
		r.hs = log.hs
		c.add(r)
		c.stop(r, why)
		return r, nil
	}
	r.hs = log.hs
	r.term = log.hs.term
	l := c.cfg.Limits
	rn, err := newRawNode(&raft.Config{
		ID: id, ElectionTick: c.cfg.ElectionTicks, HeartbeatTick: c.cfg.HeartbeatTick, Storage: log, Applied: meta.index,
		AsyncStorageWrites: true, MaxSizePerMsg: l.MaxSizePerMsg, MaxCommittedSizePerReady: l.MaxCommittedBatch,
		MaxUncommittedEntriesSize: l.MaxUncommitted, MaxInflightMsgs: l.MaxInflightMsgs, MaxInflightBytes: l.MaxInflightBytes,
		CheckQuorum: true, PreVote: true, ReadOnlyOption: raft.ReadOnlySafe, Logger: raftLogger{},
		DisableProposalForwarding: true, StepDownOnRemoval: true,
	})
	if err != nil {
		return nil, err
	}
	r.rn = rn
	r.resetElection(c)
	r.hashTicks = c.cfg.HashTicks
	c.add(r)
	r.publish()
	c.mark(r)
	return r, nil
}

func newRawNode(cfg *raft.Config) (rn *raft.RawNode, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = oerr.Errorf("host.start", oerr.Corrupt, "replica %#x: %s", cfg.ID, recovered(p))
		}
	}()
	return raft.NewRawNode(cfg)
}

// reconcile settles where log and applied state disagree after a crash. It returns whether the log became empty, and
// why the replica cannot run.
func reconcile(l *groupLog, applied entryID) (reset bool, why string) {
	if l.trunc.index > applied.index {
		return false, "log begins after the applied index: the state store lost what it had flushed"
	}
	term, err := l.Term(applied.index)
	if reset = applied.index > l.last.index || (err == nil && term != applied.term); reset {
		// A snapshot was installed and the crash came before the log was reset: the log is empty here.
		l.reset(applied)
		l.hs.commit = applied.index
	} else if err != nil {
		return false, "log: " + err.Error()
	}
	if l.hs.term < l.last.term {
		// Only a snapshot brings entries of a term whose hard state was not written with them. No vote was cast in it.
		l.hs.term, l.hs.vote = l.last.term, 0
	}
	l.hs.commit = max(l.hs.commit, applied.index)
	if l.hs.commit > l.last.index {
		return false, "log ends before the commit index: entries were lost"
	}
	return reset, ""
}

func (c *core) add(r *replica) {
	c.replicas[r.group] = r
	c.order = append(c.order, r)
	slices.SortFunc(c.order, func(a, b *replica) int { return int(int64(a.group) - int64(b.group)) })
}

func (c *core) remove(r *replica) {
	delete(c.replicas, r.group)
	c.order = slices.DeleteFunc(c.order, func(x *replica) bool { return x == r })
	c.dirty = slices.DeleteFunc(c.dirty, func(x *replica) bool { return x == r })
}

func (c *core) mark(r *replica) {
	if !r.dirty && !r.stopped {
		r.dirty = true
		c.dirty = append(c.dirty, r)
	}
}

func (c *core) event(k EventKind, r *replica, index uint64, text string) {
	c.onEvent(Event{Kind: k, Group: r.group, Replica: r.id, Term: r.term, Index: index, Text: text})
}

// stop ends a replica for good: no vote, no acknowledgement, no read any more.
func (c *core) stop(r *replica, why string) {
	if r.stopped {
		return
	}
	r.stopped = true
	r.shared.stopped.Store(&why)
	err := r.stoppedError("host")
	r.failReads(err)
	r.failWaiters(oerr.E("host", oerr.OutcomeUnknown, err))
	r.leader, r.lead = false, 0
	r.publish()
	c.metrics.stopped.Add(1)
	c.event(EventStopped, r, r.applied.index, why)
}

// guard runs f on the engine; a panic of the engine stops the replica.
func (c *core) guard(r *replica, f func()) {
	defer func() {
		if p := recover(); p != nil {
			c.stop(r, recovered(p))
		}
	}()
	f()
	c.mark(r)
}

// stepBatch takes a batch of messages that came from a node. Entries alias it.
func (c *core) stepBatch(b []byte) error {
	br, err := readBatch(b)
	if err != nil {
		return err
	}
	c.clock.sample(br.from, br.nowMS-c.nowMS, c.nowMS)
	for br.more() {
		rec, err := br.next()
		if err != nil {
			return err
		}
		r := c.replicas[rec.group]
		if r == nil || r.stopped {
			continue
		}
		if rec.msg == nil {
			if rec.hash.to == r.id {
				c.hashReported(r, rec.hash)
			}
			continue
		}
		if rec.msg.GetTo() != r.id {
			continue
		}
		c.step(r, br.from, rec.msg, rec.trunc)
	}
	return nil
}

func (c *core) step(r *replica, from ident.Node, m *pb.Message, trunc uint64) {
	if id := m.GetFrom(); r.nodes[id] == 0 && len(r.nodes) < 2*maxReplicas {
		r.nodes[id] = from
	}
	switch m.GetType() {
	case pb.MsgApp, pb.MsgHeartbeat, pb.MsgSnap:
		if m.GetTerm() >= r.term {
			r.sinceLeader = 0
			if trunc != 0 {
				r.minMatch = trunc
			}
		}
	case pb.MsgVote:
		r.sinceLeader = 0 // as raft does: whoever asks gets the time to win
	}
	c.guard(r, func() { _ = r.rn.Step(m) })
}

// tick advances the clock of all replicas by one tick.
func (c *core) tick(nowMS int64) {
	c.nowMS = nowMS
	c.clock.tick(c)
	for _, r := range c.order {
		if r.stopped {
			continue
		}
		c.guard(r, func() {
			r.rn.Tick()
			if !r.leader && r.electionDue() {
				r.resetElection(c)
				if m := r.member(r.id); m != nil && !m.Learner {
					_ = r.rn.Campaign()
				}
			}
		})
		if r.stopped {
			continue
		}
		c.tickLeader(r)
		r.log.evict(min(r.applied.index, max(r.minMatch, 1)), -1)
		r.publish()
	}
}

// resetElection draws a new timeout: raft's own lies between ElectionTicks and twice that, later than PROTOCOLS G asks.
func (r *replica) resetElection(c *core) {
	r.sinceLeader = 0
	r.electAfter = c.cfg.ElectionTicks + 1 + c.rng.IntN(5)
}

func (r *replica) electionDue() bool {
	r.sinceLeader++
	return r.sinceLeader >= r.electAfter
}

// tickLeader does what a leader does from time to time.
func (c *core) tickLeader(r *replica) {
	if !r.leader {
		return
	}
	r.minMatch = r.applied.index
	r.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr progress) {
		if id != r.id {
			r.minMatch = min(r.minMatch, pr.Match)
		}
	})
	c.tickHash(r)
}

// propose stamps and proposes; each waiter gets its outcome, now or after apply.
func (c *core) propose(g ident.Group, ps []proposal) {
	const op = "host.propose"
	r := c.replicas[g]
	var err error
	switch {
	case r == nil:
		err = oerr.Errorf(op, oerr.NotLeader, "group %d has no replica here", g)
	case r.stopped:
		err = r.stoppedError(op)
	case !r.leader:
		err = r.notLeader(op)
	case c.clock.bad:
		err = oerr.Errorf(op, oerr.Unavailable, "group %d: clock is %d ms off its peers' median", g, c.clock.offset)
	}
	if err != nil {
		for _, p := range ps {
			p.w.done(Applied{}, err)
		}
		return
	}
	for len(ps) > 0 {
		n, size := 0, 0
		for n < len(ps) && (n == 0 || size+len(ps[n].data) <= maxProposalBatch) {
			size += len(ps[n].data)
			n++
		}
		c.proposeBatch(r, ps[:n])
		ps = ps[n:]
	}
}

// proposeBatch proposes ps as one message, so that followers get them in one message, too.
func (c *core) proposeBatch(r *replica, ps []proposal) {
	const op = "host.propose"
	c.arena = c.arena[:0]
	type part struct {
		nonce  uint64
		lo, hi int
		w      *waiter
	}
	parts := make([]part, 0, len(ps))
	for _, p := range ps {
		nonce := c.nextNonce()
		if !r.addWaiter(nonce, p.w) {
			p.w.done(Applied{}, oerr.Errorf(op, oerr.Busy, "group %d: %d proposals wait already", r.group, maxWaiters))
			continue
		}
		lo := len(c.arena)
		c.arena = appendEntryData(c.arena, entryCommand, nonce, r.sm.Stamp(p.data, c.nowMS))
		parts = append(parts, part{nonce, lo, len(c.arena), p.w})
	}
	if len(parts) == 0 {
		return
	}
	es := make([]pb.Entry, len(parts))
	ptrs := make([]*pb.Entry, len(parts))
	for i, p := range parts {
		es[i].Data = c.arena[p.lo:p.hi:p.hi]
		ptrs[i] = &es[i]
	}
	var err error
	c.guard(r, func() {
		err = r.rn.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(r.id), Entries: ptrs})
	})
	c.metrics.proposals.Add(uint64(len(parts)))
	if err == nil {
		return
	}
	c.metrics.dropped.Add(uint64(len(parts)))
	for _, p := range parts {
		if r.takeWaiter(p.nonce) != nil {
			p.w.done(Applied{}, oerr.Errorf(op, oerr.Busy, "group %d: %w", r.group, err))
		}
	}
}

// proposeOwn proposes an entry of the host's own.
func (c *core) proposeOwn(r *replica, data []byte) {
	c.guard(r, func() { _ = r.rn.Propose(data) })
}

// readIndex asks for a read; w gets the applied index.
func (c *core) readIndex(g ident.Group, w *waiter) {
	const op = "host.read_index"
	r := c.replicas[g]
	switch {
	case r == nil:
		w.done(Applied{}, oerr.Errorf(op, oerr.NotLeader, "group %d has no replica here", g))
	case r.stopped:
		w.done(Applied{}, r.stoppedError(op))
	case !r.leader:
		w.done(Applied{}, r.notLeader(op))
	case len(r.reads) >= maxReadWaiters:
		w.done(Applied{}, oerr.Errorf(op, oerr.Busy, "group %d: %d reads wait already", g, maxReadWaiters))
	default:
		r.reads = append(r.reads, w)
		c.mark(r)
	}
}

// startRead sends the next ReadIndex when none is under way.
func (c *core) startRead(r *replica) {
	if len(r.reads) == 0 || len(r.inflight) > 0 || !r.isReady() {
		return
	}
	r.inflight, r.reads = r.reads, nil
	r.readNonce = c.nextNonce()
	c.metrics.readRounds.Add(1)
	c.metrics.reads.Add(uint64(len(r.inflight)))
	c.guard(r, func() { r.rn.ReadIndex(binary.LittleEndian.AppendUint64(nil, r.readNonce)) })
}

// readDone takes raft's answers.
func (c *core) readDone(r *replica, states []raft.ReadState) {
	for _, s := range states {
		if len(s.RequestCtx) != 8 || binary.LittleEndian.Uint64(s.RequestCtx) != r.readNonce || len(r.inflight) == 0 {
			continue
		}
		r.ready = append(r.ready, pendingRead{s.Index, r.inflight})
		r.inflight = nil
	}
	r.answerReads()
}

func (r *replica) answerReads() {
	rest := r.ready[:0]
	for _, p := range r.ready {
		if p.index > r.applied.index {
			rest = append(rest, p)
			continue
		}
		for _, w := range p.waiters {
			w.done(Applied{Index: r.applied.index}, nil)
		}
	}
	clear(r.ready[len(rest):])
	r.ready = rest
}
