package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"objstore/cluster"
	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard/shardtest"
)

// ailments are what can be wrong with one shard at reading time.
var ailments = []struct {
	name     string
	silent   bool // only a clock tells
	reported bool // becomes a repair row
	apply    func(h *harness, b *metadata.Blob, i int)
}{
	{"dead node", false, false, func(h *harness, b *metadata.Blob, i int) { h.mem(b, i).SetDown(true) }},
	{"hung reads", true, false, func(h *harness, b *metadata.Blob, i int) { h.mem(b, i).SetFault(shardtest.Hang(shardtest.OpRead)) }},
	{"slow reads", true, false, func(h *harness, b *metadata.Blob, i int) {
		h.mem(b, i).SetFault(shardtest.Delay(100*time.Millisecond, shardtest.OpRead))
	}},
	{"fenced drive", false, false, func(h *harness, b *metadata.Blob, i int) {
		h.mem(b, i).SetFault(shardtest.Fail(oerr.DriveFenced, shardtest.OpRead))
	}},
	{"lost shard", false, true, func(h *harness, b *metadata.Blob, i int) { h.mem(b, i).Drop(h.ref(b, i)) }},
	{"flipped first byte", false, true, func(h *harness, b *metadata.Blob, i int) { h.mem(b, i).Corrupt(h.ref(b, i), 0) }},
	{"torn by its drive's word", false, true, func(h *harness, b *metadata.Blob, i int) {
		h.mem(b, i).SetFault(shardtest.Fail(oerr.Corrupt, shardtest.OpRead))
	}},
}

func TestEachShardMayAilInEachWay(t *testing.T) {
	for _, p := range []erasure.Profile{{K: 1, M: 2}, {K: 2, M: 2}, {K: 4, M: 2}} {
		for _, a := range ailments {
			for i := range p.N() {
				t.Run(fmt.Sprintf("%s %s %d", p, a.name, i), func(t *testing.T) {
					t.Parallel()
					h := newHarness(t, p, 0, func(c *Config) {
						if a.silent {
							impatient(c)
						}
					})
					small, large := randomBody(1, oneSlab), randomBody(2, int(p.K)<<20+4321)
					h.put("small", small)
					h.put("large", large)
					a.apply(h, h.blob("small"), i)
					a.apply(h, h.blob("large"), i)
					h.expect("small", small)
					h.expect("large", large)
					if got, err := h.read("large", 100<<10, 3<<10); err != nil || !bytes.Equal(got, large[100<<10:103<<10]) {
						t.Fatalf("range: %d bytes, %v", len(got), err)
					}
					if !a.reported {
						if n := h.events.count(EventShardBad); n != 0 {
							t.Errorf("%d reports: unreachable is not bad", n)
						}
						return
					}
					if h.events.count(EventShardBad) > 0 {
						h.eventually("the bad shards have repair rows", func() bool { return h.pending() > 0 })
					} else if i < int(p.K) && p.K > 1 {
						t.Error("a bad data shard was not reported")
					}
				})
			}
		}
	}
}

func TestAnyMShardsMayAilAtOnce(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	p := erasure.Profile{K: 4, M: 2}
	for round := range 12 {
		func() {
			h := newHarness(t, p, 0, impatient)
			size := 20<<10 + rng.IntN(12<<20)
			body := randomBody(seed+uint64(round), size)
			h.put("key", body)
			var what []string
			for _, i := range rng.Perm(p.N())[:p.M] {
				a := ailments[rng.IntN(len(ailments))]
				a.apply(h, h.blob("key"), i)
				what = append(what, fmt.Sprintf("%s %d", a.name, i))
			}
			for range 5 {
				off := rng.IntN(size)
				n := rng.IntN(size-off) + 1
				got, err := h.read("key", int64(off), int64(n))
				if err != nil || !bytes.Equal(got, body[off:off+n]) {
					t.Fatalf("seed %d, round %d, %s: %d bytes, range %d+%d: %d bytes, %v", seed, round, strings.Join(what, ", "), size, off, n, len(got), err)
				}
			}
		}()
	}
}

func TestFewerThanKShardsAreUnavailableWithinABoundedTime(t *testing.T) {
	for _, a := range ailments {
		if a.name == "slow reads" {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0, impatient, func(c *Config) { c.ReadTimeout = time.Second })
			h.put("key", randomBody(1, oneSlab))
			b := h.blob("key")
			for _, i := range []int{0, 1, 3} {
				a.apply(h, b, i)
			}
			began := time.Now()
			got, err := h.read("key", 0, oneSlab)
			if !oerr.Is(err, oerr.Unavailable) || len(got) > 0 {
				t.Fatalf("%d bytes and %v, expected %s", len(got), err, oerr.Unavailable)
			}
			if took := time.Since(began); took > 10*h.e.cfg.ReadTimeout {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestAShardKnownToBeMissingIsNotAsked(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	h.nodes.Node(1).SetFull(1, true) // refused at once, and healthy for reading
	body := randomBody(1, oneSlab)
	h.put("key", body)
	asked := h.nodes.Node(1).Calls(shardtest.OpRead)
	for range 5 {
		h.expect("key", body)
	}
	if n := h.nodes.Node(1).Calls(shardtest.OpRead) - asked; n != 0 {
		t.Errorf("the drive without the shard was asked %d times", n)
	}
	if h.pending() != 1 {
		t.Errorf("%d repair rows, expected the commit's", h.pending())
	}
}

func TestAHealthyReadAsksTheNeededDataShardsOnly(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	body := randomBody(1, 9<<20) // cells of 1 MiB
	h.put("key", body)
	count := func() (n int) {
		for i := 1; i <= 4; i++ {
			n += h.nodes.Node(ident.Node(i)).Calls(shardtest.OpRead)
		}
		return n
	}
	h.expect("key", body)
	if n := count(); n != 10 { // five stripes of two cells
		t.Errorf("the whole body took %d reads, expected 10", n)
	}
	before := count()
	if _, err := h.read("key", 5, 10); err != nil {
		t.Fatal(err)
	}
	if n := count() - before; n != 1 {
		t.Errorf("a range within one cell took %d reads", n)
	}
	h.bytes.Lock()
	defer h.bytes.Unlock()
	if got := h.bytes.m["tcp get"]; got > 10<<20+64<<10 {
		t.Errorf("read %d bytes for a body of %d and one block", got, len(body))
	}
}

func TestABadShardIsReportedOnce(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	body := randomBody(1, oneSlab)
	h.put("key", body)
	b := h.blob("key")
	reports := make(chan metadata.Report, 100)
	h.router.onCommand(func(c *metadata.Command) error {
		for _, r := range c.Reports {
			reports <- r
		}
		return nil
	})
	o := h.open("key") // before the report: its row does not know yet
	h.mem(b, 1).Corrupt(h.ref(b, 1), 1)
	for range 5 {
		var got bytes.Buffer
		if err := o.WriteRange(t.Context(), &got, 0, oneSlab); err != nil || !bytes.Equal(got.Bytes(), body) {
			t.Fatal("wrong bytes", err)
		}
	}
	r := <-reports
	if r.Blob != b.ID || r.Index != 1 || r.Key != "key" || r.Version != o.ID {
		t.Errorf("reported %+v", r)
	}
	h.eventually("the repair row is there", func() bool { return h.pending() == 1 })
	if len(reports) != 0 {
		t.Errorf("%d more reports", len(reports))
	}
}

func TestAFormattedDriveIsMissingItsShards(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	body := randomBody(1, oneSlab)
	h.put("key", body)
	b := h.blob("key")
	ref := h.ref(b, 0)
	h.mem(b, 0).Format(ref.Drive)
	v := newEpoch(h.source.View(), 8)
	v.Drives = map[ident.Drive]*cluster.Drive{}
	for id, d := range h.source.View().Drives {
		c := *d
		if id == ref.Drive {
			c.Incarnation = 2
		}
		v.Drives[id] = &c
	}
	h.source.next.Store(v) // this node has not heard of it yet
	h.expect("key", body)
	h.eventually("the lost shard has a repair row", func() bool { return h.pending() == 1 })
}

func TestAReaderThatFailsEndsTheRead(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	h.put("key", randomBody(1, manySlabs))
	gone := errors.New("client went away")
	w := &failingWriter{left: 3 << 20, err: gone}
	if err := h.open("key").WriteRange(t.Context(), w, 0, manySlabs); err != gone {
		t.Errorf("%v, expected %v", err, gone)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.open("key").WriteRange(ctx, w, 0, manySlabs); !oerr.Is(err, oerr.Canceled) {
		t.Errorf("%v, expected %s", err, oerr.Canceled)
	}
	h.eventually("buffers are back", func() bool { return h.pool.InUse() == 0 })
}

type failingWriter struct {
	left int
	err  error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, w.err
	}
	return len(p), nil
}

func TestOneCopyPrefersTheLocalDrive(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 1, M: 2}, 0)
	h.nodes.Local = 1
	body := randomBody(1, 3<<20)
	h.put("key", body)
	h.expect("key", body)
	h.bytes.Lock()
	defer h.bytes.Unlock()
	if h.bytes.m["tcp get"] != 0 || h.bytes.m["local get"] != len(body) {
		t.Errorf("read %v", h.bytes.m)
	}
}

func TestReadsWaitForMemoryAndAreBusyAfterAWhile(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0, func(c *Config) { c.AdmitTimeout = 50 * time.Millisecond })
	body := randomBody(1, oneSlab)
	h.put("key", body)
	hold, err := h.e.admit.read.enter(t.Context(), h.e.admit.read.size, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.read("key", 0, 100); !oerr.Is(err, oerr.Busy) {
		t.Errorf("%v, expected %s", err, oerr.Busy)
	}
	hold.release()
	h.expect("key", body)
	if hold, err = h.e.admit.put.enter(t.Context(), h.e.admit.put.size, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := h.e.Put(t.Context(), h.request("other", body)); !oerr.Is(err, oerr.Busy) {
		t.Errorf("%v, expected %s", err, oerr.Busy)
	}
	hold.release()
}

func TestRangesOutsideTheBodyAreRefused(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	for _, size := range []int{10, oneSlab} {
		h.put("key", randomBody(1, size))
		for _, r := range [][2]int64{{-1, 1}, {0, int64(size) + 1}, {int64(size), 1}, {1, -1}, {1, 1<<63 - 1}} {
			if _, err := h.read("key", r[0], r[1]); !oerr.Is(err, oerr.InvalidRange) {
				t.Errorf("range %v of %d bytes: %v, expected %s", r, size, err, oerr.InvalidRange)
			}
		}
	}
}

// TestANarrowReadIsWidenedWhenAnotherShardFails has the healthy shard of a range across two cells answer last: what it
// read for the body is less than rebuilding the other cell needs.
func TestANarrowReadIsWidenedWhenAnotherShardFails(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0, impatient, func(c *Config) { c.ReadTimeout = 3 * time.Second })
	body := randomBody(1, 9<<20)
	h.put("key", body)
	b := h.blob("key")
	h.mem(b, 0).SetDown(true)
	h.mem(b, 2).SetFault(shardtest.Hang(shardtest.OpRead))
	h.mem(b, 1).SetFault(shardtest.Delay(300*time.Millisecond, shardtest.OpRead))
	got, err := h.read("key", 1<<20-1000, 2000) // the end of cell 0 and the start of cell 1
	if err != nil || !bytes.Equal(got, body[1<<20-1000:1<<20+1000]) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}

func TestASlowClientDoesNotKeepTheMemoryForRebuilding(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	h.put("key", randomBody(1, oneSlab))
	b := h.blob("key")
	h.mem(b, 0).SetDown(true)
	gate := h.e.admit.rebuild
	w := writerFunc(func(p []byte) (int, error) {
		if !gate.sem.TryAcquire(gate.size) {
			t.Error("memory for rebuilding is held while the client is written to")
		} else {
			gate.sem.Release(gate.size)
		}
		return len(p), nil
	})
	if err := h.open("key").WriteRange(t.Context(), w, 0, oneSlab); err != nil {
		t.Fatal(err)
	}
	if h.events.count(EventDegraded) != 1 {
		t.Error("nothing was rebuilt")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
