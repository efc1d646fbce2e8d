package host

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// failingSyncs fails every sync of a file in the log folder once it is armed.
type failingSyncs struct{ armed atomic.Bool }

func (f *failingSyncs) String() string { return "failing log syncs" }
func (f *failingSyncs) MaybeError(op errorfs.Op) error {
	sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
	if f.armed.Load() && sync && strings.Contains(op.Path, "/log/") {
		return errors.New("injected sync error")
	}
	return nil
}

func TestAFailedLogSyncIsFatalAndAcknowledgesNothing(t *testing.T) {
	inj := &failingSyncs{}
	fatal := make(chan error, 8)
	cfg := Config{
		Dir: "/drive", FS: errorfs.Wrap(vfs.NewMem(), inj), Node: 1, TickInterval: 5 * time.Millisecond, HashTicks: -1,
		StateMachines: func(ident.Group) StateMachine { return &register{} }, Sender: nopSender{},
		Fatal: func(err error) { fatal <- err },
	}
	h, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	// The host is not closed: by design the process would end here, and Pebble's writer never returns.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := h.Bootstrap(ctx, 1, 9, []Member{{Replica: 9, Node: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := h.Campaign(ctx, 1); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err = h.ReadIndex(ctx, 1); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	inj.armed.Store(true)
	if a, err := h.Propose(ctx, 1, command(opSet, 1, 0, 1, "a")); err == nil {
		t.Fatalf("acknowledged at %d without a sync", a.Index)
	}
	select {
	case err := <-fatal:
		if !strings.Contains(err.Error(), "injected") || !strings.Contains(err.Error(), "/drive") {
			t.Fatalf("the error names neither drive nor cause: %v", err)
		}
	case <-ctx.Done():
		t.Fatal("Fatal was not called")
	}
	if _, err := h.Propose(ctx, 1, command(opSet, 2, 0, 2, "a")); err == nil {
		t.Fatal("a failed host takes proposals")
	}
}

func TestFullQueuesRefuse(t *testing.T) {
	cfg := Config{Limits: Limits{QueueBytes: 100, QueueProposals: 2}}
	var in inputs
	in.init()
	if !in.batch(&cfg, make([]byte, 90)) || in.batch(&cfg, make([]byte, 20)) {
		t.Fatal("messages are not bounded in bytes")
	}
	for range 2 {
		if err := in.propose(&cfg, 1, proposal{make([]byte, 10), newWaiter()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.propose(&cfg, 1, proposal{nil, newWaiter()}); !oerr.Is(err, oerr.Busy) {
		t.Fatalf("proposals are not bounded: %v", err)
	}
	for range maxControlQueue {
		if err := in.control(func() {}); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.control(func() {}); !oerr.Is(err, oerr.Busy) {
		t.Fatalf("calls are not bounded: %v", err)
	}
	in.close(oerr.E("test", oerr.Closed, nil))
	if err := in.read(1, newWaiter()); !oerr.Is(err, oerr.Closed) {
		t.Fatalf("a closed queue takes reads: %v", err)
	}
}

func TestABadConfigIsRefusedWithEveryProblem(t *testing.T) {
	_, err := Open(Config{TickInterval: 1, Limits: Limits{SnapshotChunk: 5}})
	for _, want := range []string{"Dir", "Node", "StateMachines", "Sender", "TickInterval", "SnapshotChunk"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in %v", want, err)
		}
	}
}

func TestASnapshotThatWasDamagedOnTheWayIsNotInstalled(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.bootstrap(1)
	c.set(1, 5, "a")
	h := c.hosts[1]
	src, err := newSnapshotSource(h.stores.state, chunkInfo{stream: ident.ID{1}, group: c.group, to: replicaOf(1), from: 77, node: 2, term: 99}, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer src.close()
	b, err := src.next()
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-10] ^= 1 // the last row's value
	if err := h.HandleSnapshot(c.ctx(), b); !oerr.IsCorrupt(err) {
		t.Fatalf("a damaged snapshot: %v", err)
	}
	if names, err := h.cfg.FS.List(h.stores.stageDir); err != nil || len(names) != 0 {
		t.Fatalf("staging keeps %v: %v", names, err)
	}
	c.settled("a", 5, 1)
}
