package host

import (
	"fmt"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// replica is one group's replica on this drive. The core (one goroutine) owns it, except the parts marked shared.
type replica struct {
	group ident.Group
	id    uint64
	rn    *raft.RawNode
	log   *groupLog
	sm    StateMachine

	// What raft said last.
	term   uint64
	lead   uint64
	leader bool
	hs     hardState // newest, written or not

	// As of the last completed apply.
	applied entryID
	members []Member
	nodes   map[uint64]ident.Node // where replicas are: members, and senders of messages

	sinceLeader int // ticks without a leader, for the election jitter
	electAfter  int
	minMatch    uint64 // leader: what every member has; follower: what the leader said
	confNonce   uint64 // a configuration change of ours without an outcome

	reads     []*waiter // waiting for the next ReadIndex
	inflight  []*waiter // of the ReadIndex under way
	readNonce uint64
	ready     []pendingRead // confirmed, waiting for apply

	held    []*appendTask // writes that wait for a snapshot's install
	staged  *stagedSnapshot
	hashes  []hashAt // own, newest last
	verify  []hashAt // what a majority had, waiting for our own
	reports map[uint64]map[uint64]uint64
	// Leader: when the next comparison is due.
	hashTicks   int
	hashApplied uint64
	sending     map[uint64]bool // snapshots under way, by receiver

	dirty   bool
	stopped bool

	pending int // writes and applies under way or waiting, counted by the driver

	ap applyState // the applier owns it

	shared replicaShared
}

// replicaShared is read or written by other goroutines than the core's.
type replicaShared struct {
	applied  atomic.Uint64 // visible in the state store
	leadOn   atomic.Uint32 // ident.Node
	leadID   atomic.Uint64
	isLeader atomic.Bool
	stopped  atomic.Pointer[string]
	status   atomic.Pointer[GroupStatus]
	// view is held for reading by View and for writing while a snapshot replaces the rows.
	view sync.RWMutex

	mu struct {
		sync.Mutex
		waiters map[uint64]*waiter // proposals by nonce
	}
}

type pendingRead struct {
	index   uint64
	waiters []*waiter
}

type hashAt struct{ index, hash uint64 }

// waiter is one caller's place; ch has room for the one outcome that it gets.
type waiter struct {
	ch chan outcome
}

type outcome struct {
	applied Applied
	err     error
}

func newWaiter() *waiter { return &waiter{ch: make(chan outcome, 1)} }

func (w *waiter) done(a Applied, err error) {
	select {
	case w.ch <- outcome{a, err}:
	default: // it has one already
	}
}

func (r *replica) addWaiter(nonce uint64, w *waiter) bool {
	r.shared.mu.Lock()
	defer r.shared.mu.Unlock()
	if len(r.shared.mu.waiters) >= maxWaiters {
		return false
	}
	r.shared.mu.waiters[nonce] = w
	return true
}

// takeWaiter returns nil when the entry was proposed elsewhere or nobody waits any more.
func (r *replica) takeWaiter(nonce uint64) *waiter {
	r.shared.mu.Lock()
	defer r.shared.mu.Unlock()
	w := r.shared.mu.waiters[nonce]
	delete(r.shared.mu.waiters, nonce)
	return w
}

// failWaiters ends all proposals without an outcome: they may still be applied.
func (r *replica) failWaiters(err error) {
	r.shared.mu.Lock()
	all := r.shared.mu.waiters
	r.shared.mu.waiters = make(map[uint64]*waiter)
	r.shared.mu.Unlock()
	for _, w := range all {
		w.done(Applied{}, err)
	}
}

// failReads ends all reads without an answer.
func (r *replica) failReads(err error) {
	for _, w := range r.reads {
		w.done(Applied{}, err)
	}
	for _, w := range r.inflight {
		w.done(Applied{}, err)
	}
	for _, p := range r.ready {
		for _, w := range p.waiters {
			w.done(Applied{}, err)
		}
	}
	r.reads, r.inflight, r.ready = nil, nil, nil
}

func (r *replica) notLeader(op string) error {
	if r.lead == 0 {
		return oerr.Errorf(op, oerr.NotLeader, "group %d: no leader known", r.group)
	}
	return oerr.Errorf(op, oerr.NotLeader, "group %d: replica %#x on node %d leads", r.group, r.lead, r.nodes[r.lead])
}

func (r *replica) stoppedError(op string) error {
	return oerr.Errorf(op, oerr.Unavailable, "group %d: replica %#x is stopped: %s", r.group, r.id, *r.shared.stopped.Load())
}

// isReady reports whether this leader has applied an entry of its own term: only then does its commit index cover
// everything acknowledged before, and only then does it know that no configuration change is under way.
func (r *replica) isReady() bool { return r.leader && r.applied.term == r.term }

func (r *replica) voters() int {
	n := 0
	for _, m := range r.members {
		if !m.Learner {
			n++
		}
	}
	return n
}

func (r *replica) member(id uint64) *Member {
	for i := range r.members {
		if r.members[i].Replica == id {
			return &r.members[i]
		}
	}
	return nil
}

// setMembers adopts the members as of an applied entry.
func (r *replica) setMembers(ms []Member) {
	r.members = ms
	nodes := make(map[uint64]ident.Node, len(ms))
	for _, m := range ms {
		nodes[m.Replica] = m.Node
	}
	if r.lead != 0 && nodes[r.lead] == 0 {
		nodes[r.lead] = r.nodes[r.lead]
	}
	r.nodes = nodes
}

// publish makes the replica's state visible to other goroutines.
func (r *replica) publish() {
	r.shared.leadID.Store(r.lead)
	r.shared.leadOn.Store(uint32(r.nodes[r.lead]))
	r.shared.isLeader.Store(r.leader)
	s := &GroupStatus{
		Group: r.group, Replica: r.id, Leader: r.lead, LeaderOn: r.nodes[r.lead], Term: r.term,
		Applied: r.applied.index, Commit: r.hs.commit, Last: r.log.last.index, Members: r.members,
	}
	if p := r.shared.stopped.Load(); p != nil {
		s.Stopped = *p
	} else if r.leader {
		s.Progress = make(map[uint64]uint64, len(r.members))
		r.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr progress) { s.Progress[id] = pr.Match })
	}
	r.shared.status.Store(s)
}

// recovered is the reason that a panic of the engine gives: it found an invariant broken, and this replica cannot go on.
func recovered(p any) string { return fmt.Sprintf("raft: %v", p) }

// raftLogger drops everything but what breaks an invariant, which panics and is caught by the core.
type raftLogger struct{}

func (raftLogger) Debug(...any)                      {}
func (raftLogger) Debugf(string, ...any)             {}
func (raftLogger) Error(...any)                      {}
func (raftLogger) Errorf(string, ...any)             {}
func (raftLogger) Info(...any)                       {}
func (raftLogger) Infof(string, ...any)              {}
func (raftLogger) Warning(...any)                    {}
func (raftLogger) Warningf(string, ...any)           {}
func (raftLogger) Fatal(v ...any)                    { panic(fmt.Sprint(v...)) }
func (raftLogger) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (raftLogger) Panic(v ...any)                    { panic(fmt.Sprint(v...)) }
func (raftLogger) Panicf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// appendHardState reads the hard state out of raft's storage message, if there is one.
func appendHardState(m *pb.Message) (hardState, bool) {
	if m.Term == nil && m.Vote == nil && m.Commit == nil {
		return hardState{}, false
	}
	return hardState{m.GetTerm(), m.GetVote(), m.GetCommit()}, true
}
