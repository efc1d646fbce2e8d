package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// cluster is some hosts in this process. Batches travel over one bounded channel for each receiver.
type cluster struct {
	tb    testing.TB
	hosts map[ident.Node]*testHost
	group ident.Group
}

type testHost struct {
	*Host
	cfg    Config
	in     chan []byte
	stop   chan struct{}
	wg     sync.WaitGroup
	down   atomic.Bool
	offset atomic.Int64 // of its clock, ms
	mu     sync.Mutex
	events []Event
}

type clusterSender struct {
	c    *cluster
	from ident.Node
}

func (s clusterSender) SendRaft(n ident.Node, b []byte) bool {
	h := s.c.hosts[n]
	if h == nil || h.down.Load() || s.c.hosts[s.from].down.Load() {
		return false
	}
	select {
	case h.in <- b:
		return true
	default:
		return false
	}
}

func (s clusterSender) SendSnapshot(ctx context.Context, n ident.Node, chunks func() ([]byte, error)) error {
	h := s.c.hosts[n]
	for {
		b, err := chunks()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h == nil || h.down.Load() {
			return oerr.Errorf("test", oerr.Unavailable, "node %d is down", n)
		}
		if err := h.HandleSnapshot(ctx, b); err != nil {
			return err
		}
	}
}

func newCluster(tb testing.TB, nodes int, tweak func(ident.Node, *Config)) *cluster {
	tb.Helper()
	c := &cluster{tb: tb, hosts: map[ident.Node]*testHost{}, group: 3}
	for i := range nodes {
		n := ident.Node(i + 1)
		h := &testHost{}
		h.cfg = Config{
			Dir: "/drive", FS: vfs.NewMem(), Node: n, TickInterval: 20 * time.Millisecond, ElectionTicks: 15, HeartbeatTick: 2,
			HashTicks: -1, StateMachines: func(ident.Group) StateMachine { return &register{} }, Sender: clusterSender{c, n},
			Now:   func() int64 { return time.Now().UnixMilli() + h.offset.Load() },
			Fatal: func(err error) { tb.Errorf("node %d: %v", n, err) },
			OnEvent: func(e Event) {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.events = append(h.events, e)
			},
		}
		if tweak != nil {
			tweak(n, &h.cfg)
		}
		c.hosts[n] = h
	}
	for n := range c.hosts {
		c.open(n)
	}
	tb.Cleanup(func() {
		for n := range c.hosts {
			c.close(n)
		}
	})
	return c
}

func (c *cluster) open(n ident.Node) {
	c.tb.Helper()
	h := c.hosts[n]
	var err error
	if h.Host, err = Open(h.cfg); err != nil {
		c.tb.Fatal(err)
	}
	h.in, h.stop = make(chan []byte, 1024), make(chan struct{})
	h.down.Store(false)
	h.wg.Go(func() {
		for {
			select {
			case <-h.stop:
				return
			case b := <-h.in:
				_ = h.HandleRaft(b) // a full queue drops, as a network does
			}
		}
	})
}

func (c *cluster) close(n ident.Node) {
	h := c.hosts[n]
	if h.down.Swap(true) {
		return
	}
	close(h.stop)
	h.wg.Wait()
	if err := h.Close(); err != nil {
		c.tb.Errorf("node %d: close: %v", n, err)
	}
}

func (c *cluster) bootstrap(nodes ...ident.Node) {
	c.tb.Helper()
	var ms []Member
	for _, n := range nodes {
		ms = append(ms, Member{Replica: replicaOf(n), Node: n})
	}
	for _, n := range nodes {
		if err := c.hosts[n].Bootstrap(c.ctx(), c.group, replicaOf(n), ms); err != nil {
			c.tb.Fatal(err)
		}
	}
}

func (c *cluster) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	c.tb.Cleanup(cancel)
	return ctx
}

// until polls a condition under a deadline.
func (c *cluster) until(what string, f func() bool) {
	c.tb.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			for n, h := range c.hosts {
				if !h.down.Load() {
					c.tb.Logf("node %d: %+v", n, h.Status())
				}
			}
			c.tb.Fatalf("not reached: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// leader waits until a host leads and serves reads.
func (c *cluster) leader() *testHost {
	c.tb.Helper()
	var l *testHost
	c.until("a leader", func() bool {
		for _, h := range c.hosts {
			if h.down.Load() {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			_, err := h.ReadIndex(ctx, c.group)
			cancel()
			if err == nil {
				l = h
				return true
			}
		}
		return false
	})
	return l
}

// set retries across elections.
func (c *cluster) set(request, value uint64, key string) Applied {
	c.tb.Helper()
	var a Applied
	c.until("a proposal", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		var err error
		a, err = c.leader().Propose(ctx, c.group, command(opSet, request, 0, value, key))
		return err == nil
	})
	return a
}

func (h *testHost) get(g ident.Group, key string) (v uint64, ok bool) {
	_ = h.View(g, func(r Reader) error {
		b, found, err := r.Get(registerKey(key))
		if found {
			v, ok = beUint(b), true
		}
		return err
	})
	return v, ok
}

func (c *cluster) settled(key string, value uint64, nodes ...ident.Node) {
	c.tb.Helper()
	for _, n := range nodes {
		c.until(fmt.Sprintf("%s = %d on node %d", key, value, n), func() bool {
			v, ok := c.hosts[n].get(c.group, key)
			return ok && v == value
		})
	}
}

func (h *testHost) saw(k EventKind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.Kind == k {
			return true
		}
	}
	return false
}

// cutTo is where the newest cut of a log was.
func (h *testHost) cutTo() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	to := uint64(0)
	for _, e := range h.events {
		if e.Kind == EventTruncated {
			to = max(to, e.Index)
		}
	}
	return to
}

func TestThreeHostsReplicateSurviveALeaderAndARestart(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := newCluster(t, 3, nil)
	defer closeAll(c)
	c.bootstrap(1, 2, 3)
	c.set(1, 11, "a")
	c.settled("a", 11, 1, 2, 3)
	old := c.leader()
	if err := old.Bootstrap(c.ctx(), c.group, 99, []Member{{Replica: 99, Node: old.cfg.Node}}); err == nil {
		t.Fatal("a replica id other than the drive's was accepted")
	}
	c.close(old.cfg.Node)
	c.set(2, 22, "a")
	c.open(old.cfg.Node)
	c.settled("a", 22, 1, 2, 3)
	for _, h := range c.hosts {
		if h.Leader(c.group) == 0 {
			continue
		}
		if h != c.leader() {
			if _, err := h.Propose(c.ctx(), c.group, command(opSet, 3, 0, 3, "a")); !oerr.Is(err, oerr.NotLeader) && !oerr.Is(err, oerr.OutcomeUnknown) {
				t.Fatalf("proposal at a follower: %v", err)
			}
		}
	}
}

func closeAll(c *cluster) {
	for n := range c.hosts {
		c.close(n)
	}
}

func TestConcurrentProposersAndReadersSeeTheirOwnWrites(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := newCluster(t, 3, nil)
	defer closeAll(c)
	c.bootstrap(1, 2, 3)
	l := c.leader()
	var wg sync.WaitGroup
	for p := range 16 {
		wg.Go(func() {
			key := fmt.Sprint("p", p)
			for i := range uint64(30) {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				_, err := l.Propose(ctx, c.group, command(opSet, uint64(p)<<32|i, 0, i, key))
				if err == nil {
					if _, err = l.ReadIndex(ctx, c.group); err == nil {
						if v, ok := l.get(c.group, key); !ok || v != i {
							t.Errorf("%s: read %d %t, wrote %d", key, v, ok, i)
						}
					}
				}
				cancel()
				if err != nil && !oerr.Is(err, oerr.NotLeader) && !oerr.Is(err, oerr.OutcomeUnknown) {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
	wg.Wait()
	m := l.Metrics()
	if m.Syncs == 0 || m.ReadRounds == 0 || m.Applied == 0 {
		t.Fatalf("metrics: %+v", m)
	}
}

func TestAnEmptyLearnerIsFilledPromotedAndTheOldReplicaRemoved(t *testing.T) {
	c := newCluster(t, 4, func(_ ident.Node, cfg *Config) { cfg.Limits.SnapshotChunk = 1 << 10 })
	c.bootstrap(1, 2, 3)
	for i := range uint64(50) {
		c.set(i, i, fmt.Sprint("k", i))
	}
	c.set(99, 7, "x")
	if err := c.hosts[4].CreateReplica(c.ctx(), c.group, replicaOf(4)); err != nil {
		t.Fatal(err)
	}
	l := c.leader()
	if err := l.Promote(c.ctx(), c.group, replicaOf(4)); !oerr.Is(err, oerr.InvalidArgument) {
		t.Fatalf("a stranger was promoted: %v", err)
	}
	if err := l.AddLearner(c.ctx(), c.group, Member{Replica: replicaOf(4), Node: 4}); err != nil {
		t.Fatal(err)
	}
	c.settled("x", 7, 4)
	c.until("promotion", func() bool { return c.leader().Promote(c.ctx(), c.group, replicaOf(4)) == nil })
	gone := ident.Node(1)
	if l.cfg.Node == 1 {
		gone = 2
	}
	c.until("removal", func() bool { return c.leader().Remove(c.ctx(), c.group, replicaOf(gone)) == nil })
	if err := c.hosts[gone].DestroyReplica(c.ctx(), c.group, replicaOf(gone)); err != nil {
		t.Fatal(err)
	}
	if err := c.hosts[gone].CreateReplica(c.ctx(), c.group, replicaOf(gone)); !oerr.Is(err, oerr.InvalidArgument) {
		t.Fatalf("a destroyed replica came back under its id: %v", err)
	}
	c.close(gone)
	c.set(100, 8, "x")
	c.settled("x", 8, 4)
	if got := len(c.leader().Status()[0].Members); got != 3 {
		t.Fatalf("%d members, expected 3", got)
	}
	c.until("the learner's snapshot", func() bool { return c.hosts[4].saw(EventSnapshotReceived) })
}

func TestALaggingReplicaGetsASnapshotAfterTheLogWasCut(t *testing.T) {
	c := newCluster(t, 3, func(_ ident.Node, cfg *Config) {
		cfg.Limits.LogKeepEntries = 8
		cfg.Limits.StateMemTable = 256 << 10
	})
	c.bootstrap(1, 2, 3)
	l := c.leader()
	lag := ident.Node(1)
	if l.cfg.Node == 1 {
		lag = 2
	}
	c.set(100, 7, "x")
	c.settled("x", 7, lag)
	behind := c.leader().AppliedIndex(c.group) // nothing is proposed until the replica is gone
	c.close(lag)
	for i := range uint64(100) {
		c.set(i, i, "y")
	}
	for n, h := range c.hosts {
		c.until("logs that begin after what the lagging replica has", func() bool { return n == lag || h.cutTo() > behind })
	}
	c.open(lag)
	c.settled("y", 99, lag)
	// The event follows the install, which readers see first.
	c.until("the lagging replica's snapshot", func() bool { return c.hosts[lag].saw(EventSnapshotReceived) })
}

func TestLeadershipIsTransferredAndCampaignsAreObeyed(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.bootstrap(1, 2, 3)
	if err := c.hosts[2].Campaign(c.ctx(), c.group); err != nil {
		t.Fatal(err)
	}
	c.leader()
	to := ident.Node(3)
	if c.leader().cfg.Node == 3 {
		to = 1
	}
	c.until("transfer", func() bool {
		l := c.leader()
		_ = l.TransferLeadership(c.ctx(), c.group, replicaOf(to))
		return l.cfg.Node == to
	})
}

func TestACorruptedReplicaIsFoundByItsHashAndStopped(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.bootstrap(1, 2, 3)
	c.set(1, 11, "a")
	c.settled("a", 11, 1, 2, 3)
	bad := ident.Node(1)
	if c.leader().cfg.Node == 1 {
		bad = 2
	}
	h := c.hosts[bad]
	row := append(prefix(c.group, stateRow), registerKey("a")...)
	if err := h.stores.state.db.Set(row, []byte{0, 0, 0, 0, 0, 0, 0, 12}, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	c.until("the stop of the corrupted replica", func() bool {
		_ = c.leader().CheckHashes(c.ctx(), c.group)
		return h.Status()[0].Stopped != ""
	})
	if !h.saw(EventStopped) || h.Metrics().HashMismatches != 1 {
		t.Fatalf("no event or metric: %+v", h.Metrics())
	}
	if err := h.View(c.group, func(Reader) error { return nil }); !oerr.Is(err, oerr.Unavailable) {
		t.Fatalf("a stopped replica serves: %v", err)
	}
	for n, o := range c.hosts {
		if n != bad && o.Status()[0].Stopped != "" {
			t.Fatalf("node %d was stopped too: %s", n, o.Status()[0].Stopped)
		}
	}
	c.set(2, 13, "a")
}

func TestALeaderWhoseClockIsOffHandsOver(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.bootstrap(1, 2, 3)
	c.set(1, 1, "a")
	l := c.leader()
	l.offset.Store(-60_000)
	c.until("another leader", func() bool { return c.leader() != l })
	if !l.saw(EventClock) {
		t.Fatal("no event tells of the clock")
	}
	c.set(2, 2, "a")
}

func TestASingleReplicaServesAndRestarts(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.bootstrap(1)
	c.set(1, 5, "a")
	c.close(1)
	c.open(1)
	c.leader()
	if v, ok := c.hosts[1].get(c.group, "a"); !ok || v != 5 {
		t.Fatalf("read %d %t after a restart, wrote 5", v, ok)
	}
	if err := c.hosts[1].Remove(c.ctx(), c.group, replicaOf(1)); !oerr.Is(err, oerr.InvalidArgument) {
		t.Fatalf("the last voter was removed: %v", err)
	}
}

func TestAFailingStateMachineStopsItsReplicaOnly(t *testing.T) {
	boom := errors.New("boom")
	c := newCluster(t, 1, func(_ ident.Node, cfg *Config) {
		cfg.StateMachines = func(g ident.Group) StateMachine {
			m := &register{}
			if g == 4 {
				m.fail = func(ident.Group, uint64) error { return boom }
			}
			return m
		}
	})
	c.bootstrap(1)
	if err := c.hosts[1].Bootstrap(c.ctx(), 4, replicaOf(1), []Member{{Replica: replicaOf(1), Node: 1}}); err != nil {
		t.Fatal(err)
	}
	c.until("the stop", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := c.hosts[1].Propose(ctx, 4, command(opSet, 1, 0, 1, "z"))
		return err != nil && c.hosts[1].Status()[1].Stopped != ""
	})
	c.set(1, 5, "a")
	c.settled("a", 5, 1)
}

func TestCallsAfterCloseAreRefused(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.bootstrap(1)
	c.leader()
	h := c.hosts[1]
	c.close(1)
	if _, err := h.Propose(c.ctx(), c.group, command(opSet, 1, 0, 1, "a")); !oerr.Is(err, oerr.Closed) && !oerr.Is(err, oerr.NotLeader) {
		t.Fatalf("propose: %v", err)
	}
	if err := h.View(c.group, func(Reader) error { return nil }); !oerr.Is(err, oerr.Closed) {
		t.Fatalf("view: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatalf("second close: %v", err)
	}
}
