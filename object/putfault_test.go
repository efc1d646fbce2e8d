package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"objstore/cluster"
	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard/shardtest"
)

// oneSlab and manySlabs are body lengths that take the two ways through the engine under every profile.
const (
	oneSlab   = 100 << 10
	manySlabs = 9<<20 + 12345
)

func bothSizes(t *testing.T, f func(t *testing.T, size int)) {
	for _, size := range []int{oneSlab, manySlabs} {
		t.Run(fmt.Sprintf("%d KiB", size>>10), func(t *testing.T) { f(t, size) })
	}
}

// TestAPutNeedsItsWriteQuorum is the table of PROTOCOLS D.
func TestAPutNeedsItsWriteQuorum(t *testing.T) {
	for _, c := range []struct {
		p        erasure.Profile
		mayBeOut int
	}{{erasure.Profile{K: 1, M: 0}, 0}, {erasure.Profile{K: 1, M: 1}, 0}, {erasure.Profile{K: 1, M: 2}, 1}, {erasure.Profile{K: 2, M: 1}, 0},
		{erasure.Profile{K: 2, M: 2}, 1}, {erasure.Profile{K: 3, M: 2}, 1}, {erasure.Profile{K: 4, M: 2}, 1}, {erasure.Profile{K: 5, M: 3}, 1}, {erasure.Profile{K: 8, M: 4}, 2}} {
		bothSizes(t, func(t *testing.T, size int) {
			h := newHarness(t, c.p, 0)
			body := randomBody(3, size)
			for i := range c.mayBeOut {
				h.nodes.Node(ident.Node(i + 1)).SetDown(true)
			}
			h.put("key", body)
			if got := bits.OnesCount32(h.blob("key").Missing); got != c.mayBeOut || h.pending() != int64(c.mayBeOut) {
				t.Fatalf("%s with %d nodes down: %d shards missing, %d repair rows", c.p, c.mayBeOut, got, h.pending())
			}
			h.expect("key", body)
			h.nodes.Node(ident.Node(c.mayBeOut + 1)).SetDown(true)
			if _, err := h.e.Put(t.Context(), h.request("refused", body)); !oerr.Is(err, oerr.Unavailable) {
				t.Fatalf("%s with %d nodes down: %v, expected %s", c.p, c.mayBeOut+1, err, oerr.Unavailable)
			}
			h.expectNoKey("refused")
			up := c.p.N() - c.mayBeOut - 1
			h.eventually("the shards of the failed put are removed", func() bool {
				n := 0
				for i := range up {
					n += h.nodes.Node(ident.Node(c.p.N() - i)).Shards()
				}
				return n == up
			})
		})
	}
}

func TestAPutThatOnlyFullDrivesRefuseIsDriveFull(t *testing.T) {
	bothSizes(t, func(t *testing.T, size int) {
		h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
		for i := 1; i <= 2; i++ {
			h.nodes.Node(ident.Node(i)).SetFull(ident.Drive(i), true)
		}
		_, err := h.e.Put(t.Context(), h.request("key", randomBody(1, size)))
		if !oerr.Is(err, oerr.DriveFull) {
			t.Fatalf("%v, expected %s", err, oerr.DriveFull)
		}
		h.expectNoKey("key")
		h.nodes.Node(1).SetFull(1, false)
		h.nodes.Node(1).SetDown(true) // now one is full, one is down
		if _, err := h.e.Put(t.Context(), h.request("key", randomBody(1, size))); !oerr.Is(err, oerr.Unavailable) {
			t.Fatalf("%v, expected %s", err, oerr.Unavailable)
		}
	})
}

func TestASlowShardIsAckedEarlyAndLandsLate(t *testing.T) {
	bothSizes(t, func(t *testing.T, size int) {
		h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0, impatient, func(c *Config) { c.LateMax = 10 * time.Second })
		gate := make(chan struct{})
		h.nodes.Node(3).SetFault(func(ctx context.Context, c shardtest.Call) error {
			if c.Op == shardtest.OpCommit {
				select {
				case <-gate:
				case <-ctx.Done():
				}
			}
			return nil
		})
		body := randomBody(1, size)
		h.put("key", body)
		if got := bits.OnesCount32(h.blob("key").Missing); got != 1 || h.pending() != 1 {
			t.Fatalf("%d shards missing, %d repair rows", got, h.pending())
		}
		h.expect("key", body)
		if h.events.count(EventEarlyAck) != 1 {
			t.Error("no event for the early acknowledgement")
		}
		close(gate)
		h.eventually("the late shard's repair row is cleared", func() bool { return h.pending() == 0 && h.blob("key").Missing == 0 })
		h.expect("key", body)
	})
}

func TestAStuckShardIsCancelledAfterLateMax(t *testing.T) {
	bothSizes(t, func(t *testing.T, size int) {
		h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0, impatient)
		h.nodes.Node(2).SetFault(shardtest.Hang(shardtest.OpCommit))
		began := time.Now()
		h.put("key", randomBody(1, size))
		if took := time.Since(began); took > h.e.cfg.WriteIdle*3/4 {
			t.Errorf("the put took %s", took)
		}
		h.eventually("the stuck writer is cancelled", func() bool { return h.nodes.Writers() == 0 && h.pool.InUse() == 0 })
		if h.pending() != 1 || h.events.count(EventLanded) != 0 {
			t.Errorf("%d repair rows, %d landings", h.pending(), h.events.count(EventLanded))
		}
	})
}

func TestLateStreamsBeyondTheBudgetAreCancelledAtOnce(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0, impatient, func(c *Config) { c.LateMax, c.LateCount = time.Hour, 1 })
	h.nodes.Node(2).SetFault(shardtest.Hang(shardtest.OpCommit))
	for i := range 3 {
		h.put(fmt.Sprint(i), randomBody(1, oneSlab))
	}
	h.eventually("only one stream is left open", func() bool { return h.nodes.Writers() == 1 })
	if l := h.e.Latencies(); l[1].Late != 1 {
		t.Errorf("drive 2 shows %d late streams", l[1].Late)
	}
}

func TestAStreamThatHoldsAPutUpIsDropped(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0, impatient)
	h.nodes.Node(4).SetFault(shardtest.Hang(shardtest.OpAppend))
	body := randomBody(1, manySlabs)
	began := time.Now()
	h.put("key", body)
	if took := time.Since(began); took > h.e.cfg.WriteIdle*3/4 {
		t.Errorf("the put took %s", took)
	}
	if h.events.count(EventShardDropped) != 1 || h.pending() != 1 {
		t.Errorf("%d streams dropped, %d repair rows", h.events.count(EventShardDropped), h.pending())
	}
	h.expect("key", body)
}

func TestAStreamIsNotDroppedWhereTheQuorumNeedsIt(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 1}, 0, impatient)
	h.nodes.Node(2).SetFault(shardtest.Delay(250*time.Millisecond, shardtest.OpAppend)) // slower than Laggard
	body := randomBody(1, 10<<20)
	h.put("key", body)
	if h.events.count(EventShardDropped) != 0 || h.pending() != 0 {
		t.Errorf("%d streams dropped, %d repair rows", h.events.count(EventShardDropped), h.pending())
	}
}

// endings makes bodies that end wrongly in every way.
func endings(size int) map[string]struct {
	body Body
	is   func(error) bool
} {
	broken := errors.New("broken reader")
	b := randomBody(9, size)
	type ending = struct {
		body Body
		is   func(error) bool
	}
	with := func(r io.Reader) Body { x := bodyOf(b); x.Reader = r; return x }
	isBroken := func(err error) bool { return err == broken }
	invalid := func(err error) bool { return oerr.Is(err, oerr.InvalidArgument) }
	refusing := bodyOf(b)
	refusing.Seal = func() (Sealed, error) { return Sealed{}, broken }
	return map[string]ending{
		"error in the middle": {with(io.MultiReader(bytes.NewReader(b[:size/2]), iotest.ErrReader(broken))), isBroken},
		"error at the start":  {with(iotest.ErrReader(broken)), isBroken},
		"error at the end":    {with(io.MultiReader(bytes.NewReader(b), iotest.ErrReader(broken))), isBroken},
		"short":               {with(bytes.NewReader(b[:size-1])), func(err error) bool { return invalid(err) && errors.Is(err, io.ErrUnexpectedEOF) }},
		"long":                {with(io.MultiReader(bytes.NewReader(b), bytes.NewReader([]byte{1}))), invalid},
		"seal refuses":        {refusing, isBroken},
	}
}

func TestABodyThatEndsWronglyLeavesNothing(t *testing.T) {
	for _, size := range []int{1, 5000, oneSlab, 600 << 10, manySlabs} {
		for name, c := range endings(size) {
			t.Run(fmt.Sprintf("%s, %d bytes", name, size), func(t *testing.T) {
				h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
				_, err := h.e.Put(t.Context(), &PutRequest{Bucket: testBucket, Key: "key", Body: c.body})
				if !c.is(err) {
					t.Fatalf("put: %v", err)
				}
				h.expectNoKey("key")
				h.eventually("no shard is left", func() bool { return h.nodes.Shards() == 0 && h.nodes.Writers() == 0 && h.pool.InUse() == 0 })
			})
		}
	}
}

func TestARefusedCommitIsAbandonedAndItsShardsRemoved(t *testing.T) {
	bothSizes(t, func(t *testing.T, size int) {
		h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
		first := randomBody(1, size)
		h.put("key", first)
		var refused metadata.Blob
		var abandoned atomic.Bool
		h.router.onCommand(func(c *metadata.Command) error {
			switch c.Op {
			case metadata.OpPut:
				refused = *c.Version.Parts[0].Blob
			case metadata.OpAbandon:
				abandoned.Store(slices.Equal(c.Blobs, []ident.ID{refused.ID}) && c.Key == "key")
			}
			return nil
		})
		req := h.request("key", randomBody(2, size))
		req.Precondition.IfNoneMatchAny = true
		if _, err := h.e.Put(t.Context(), req); !oerr.Is(err, oerr.PreconditionFailed) {
			t.Fatalf("%v, expected %s", err, oerr.PreconditionFailed)
		}
		h.eventually("the refused blob is abandoned and its shards are gone", func() bool { return abandoned.Load() && h.nodes.Shards() == 4 })
		h.expect("key", first)
		h.router.onCommand(func(*metadata.Command) error { return nil })
		v := metadata.Version{ID: ident.New(), Size: int64(size), Parts: []metadata.Part{{Size: int64(size), Blob: &refused}}}
		if _, err := h.router.Command(t.Context(), testBucket, &metadata.Command{Op: metadata.OpPut, Key: "key", Version: &v}); !oerr.Is(err, oerr.Abandoned) {
			t.Errorf("a late commit of the abandoned blob: %v, expected %s", err, oerr.Abandoned)
		}
	})
}

func TestACommitWithoutAnOutcomeIsNeverAbandoned(t *testing.T) {
	for _, kind := range []oerr.Kind{oerr.OutcomeUnknown, oerr.Unavailable, oerr.DeadlineExceeded} {
		h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
		h.router.afterCommand(func(c *metadata.Command) error {
			if c.Op == metadata.OpAbandon {
				t.Error("the blob was abandoned")
			}
			if c.Op == metadata.OpPut {
				return oerr.E("test", kind, errors.New("the answer was lost"))
			}
			return nil
		})
		body := randomBody(1, oneSlab)
		if _, err := h.e.Put(t.Context(), h.request("key", body)); !oerr.Is(err, kind) {
			t.Fatalf("%v, expected %s", err, kind)
		}
		h.eventually("the put is over", func() bool { return h.e.InFlight() == 0 })
		h.expect("key", body) // it happened
	}
}

func TestASmallBodyIsWrittenAgainElsewhere(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 4)
	h.nodes.Node(1).SetDown(true)
	h.nodes.Node(2).SetDown(true)
	for i := range 40 { // of 16 groups on 8 nodes, six have both
		body := randomBody(uint64(i), oneSlab)
		h.put(fmt.Sprint(i), body)
		h.expect(fmt.Sprint(i), body)
	}
}

func TestAPutAgainstAnOldMapRefreshesItAndSucceeds(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	for i := 1; i <= 4; i++ {
		h.nodes.Node(ident.Node(i)).SetMinEpoch(ident.Drive(i), 8)
	}
	h.source.next.Store(newEpoch(h.source.View(), 8))
	body := randomBody(1, oneSlab)
	h.put("key", body)
	if b := h.blob("key"); b.Epoch != 8 || b.Missing != 0 {
		t.Errorf("committed %+v", b)
	}
	for i := 1; i <= 4; i++ {
		h.nodes.Node(ident.Node(i)).SetMinEpoch(ident.Drive(i), 9)
	}
	h.source.next.Store(newEpoch(h.source.View(), 9))
	h.expect("key", body)
}

func newEpoch(old *cluster.View, epoch uint64) *cluster.View {
	v := *old
	v.Epoch, v.Index = epoch, v.Index+1
	return &v
}

func TestADeadNodeByTheHintIsNotWaitedFor(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0, func(c *Config) { c.GraceCold = time.Hour })
	h.nodes.Node(2).SetFault(shardtest.Hang())
	h.dead.Store(ident.Node(2), true)
	h.put("key", randomBody(1, oneSlab)) // the test's deadline is the check
}

func TestAClientThatGoesAwayLeavesNothing(t *testing.T) {
	bothSizes(t, func(t *testing.T, size int) {
		h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
		h.nodes.SetFault(shardtest.Hang(shardtest.OpCommit, shardtest.OpAppend))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			h.eventually("the put has started", func() bool { return h.e.InFlight() == 1 && h.nodes.Writers() == 4 })
			cancel()
		}()
		if _, err := h.e.Put(ctx, h.request("key", randomBody(1, size))); !oerr.Is(err, oerr.Canceled) {
			t.Fatalf("%v, expected %s", err, oerr.Canceled)
		}
		h.nodes.SetFault(nil)
		h.expectNoKey("key")
		h.eventually("nothing is left", func() bool { return h.nodes.Shards() == 0 && h.nodes.Writers() == 0 })
	})
}

func TestDisownedKnowsWhatIsBeingWritten(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	entered, leave := make(chan metadata.Blob), make(chan struct{})
	h.router.onCommand(func(c *metadata.Command) error {
		if c.Op == metadata.OpPut {
			entered <- *c.Version.Parts[0].Blob
			<-leave
		}
		return nil
	})
	done := make(chan error, 1)
	go func() {
		_, err := h.e.Put(context.Background(), h.request("key", randomBody(1, oneSlab)))
		done <- err
	}()
	b := <-entered
	own := h.e.cfg.StartID
	if h.e.Disowned(own, b.WriterPut, b.ID) {
		t.Error("a blob before its commit was disowned")
	}
	if !h.e.Disowned(own, b.WriterPut, ident.New()) || !h.e.Disowned(own, b.WriterPut+1, b.ID) || !h.e.Disowned(ident.New(), b.WriterPut, b.ID) {
		t.Error("a blob that nobody writes was owned")
	}
	close(leave)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !h.e.Disowned(own, b.WriterPut, b.ID) {
		t.Error("a blob after its commit was owned")
	}
}

func TestAPutIntoNoBucketIsRefusedOnlyWithKnowledge(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	req := h.request("key", randomBody(1, oneSlab))
	req.Bucket = "nowhere"
	if _, err := h.e.Put(t.Context(), req); !oerr.Is(err, oerr.NoSuchBucket) {
		t.Errorf("%v, expected %s", err, oerr.NoSuchBucket)
	}
	noQuorum := error(oerr.E("test", oerr.Unavailable, errors.New("no quorum")))
	h.source.err.Store(&noQuorum)
	if _, err := h.e.Put(t.Context(), req); !oerr.Is(err, oerr.Unavailable) {
		t.Errorf("%v, expected %s", err, oerr.Unavailable)
	}
	if _, err := h.e.HeadBucket(t.Context(), "nowhere"); !oerr.Is(err, oerr.Unavailable) {
		t.Errorf("%v, expected %s", err, oerr.Unavailable)
	}
	if _, err := h.e.HeadBucket(t.Context(), testBucket); err != nil {
		t.Errorf("a bucket in the view: %v", err)
	}
}
