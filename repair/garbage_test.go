package repair

import (
	"context"
	"fmt"
	"testing"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard"
	"objstore/shard/shardtest"
)

func TestGarbageGoesAfterItsGraceFromAllDrives(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		h.put("kept", 20<<10)
		h.put("key", 20<<10)
		h.run()
		h.delete("key")
		pass(14 * time.Minute)
		if n := h.nodes.Shards(); n != 8 || h.garbage() != 1 {
			t.Fatalf("%d shards and %d rows before the grace has passed", n, h.garbage())
		}
		h.within(4*time.Minute, "the row is gone", func() bool { return h.garbage() == 0 })
		if n := h.nodes.Shards(); n != 4 || h.w.Metrics.GarbageBlobs.Load() != 1 {
			t.Errorf("%d shards are left, expected the 4 of the other object; %d blobs removed", n, h.w.Metrics.GarbageBlobs.Load())
		}
		h.whole("kept")
	})
}

func TestAGarbageRowStaysUntilEveryDriveHasAnswered(t *testing.T) {
	for name, away := range map[string]func(h *harness) func(){
		"down": func(h *harness) func() {
			h.nodes.Node(3).SetDown(true)
			return func() { h.nodes.Node(3).SetDown(false) }
		},
		"believed down": func(h *harness) func() {
			h.dead.Store(ident.Node(3), true)
			return func() { h.dead.Delete(ident.Node(3)) }
		},
		"hung": func(h *harness) func() {
			h.nodes.Node(3).SetFault(shardtest.Hang(shardtest.OpDelete))
			return func() { h.nodes.Node(3).SetFault(nil) }
		},
		"on a newer map": func(h *harness) func() {
			h.nodes.Node(3).SetMinEpoch(3, 8)
			return func() { h.source.edit(func(v *cluster.View) { v.Epoch = 8 }) }
		},
		"failing": func(h *harness) func() {
			h.nodes.Node(3).SetFault(shardtest.Fail(oerr.Corrupt, shardtest.OpDelete))
			return func() { h.nodes.Node(3).SetFault(nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, options{}, func(h *harness) {
				h.put("key", 20<<10)
				h.delete("key")
				back := away(h)
				h.run()
				pass(2 * time.Hour)
				if h.garbage() != 1 || h.nodes.Shards() != 1 {
					t.Fatalf("%d rows, %d shards, expected the row and the shard of the drive that did not answer", h.garbage(), h.nodes.Shards())
				}
				if n := h.nodes.Node(1).Calls(shardtest.OpDelete); n != 1 {
					t.Errorf("a drive that had answered was asked %d times", n)
				}
				back()
				h.within(3*time.Minute, "the row is gone", func() bool { return h.garbage() == 0 && h.nodes.Shards() == 0 })
			})
		})
	}
}

func TestForGarbageANewerIncarnationMeansAbsent(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		h.put("key", 20<<10)
		h.delete("key")
		h.nodes.Node(3).Format(3)
		h.run()
		h.within(20*time.Minute, "the row is gone", func() bool { return h.garbage() == 0 })
	})
}

func TestAShardThatACommitListedAsMissingGoesWithItsBlob(t *testing.T) {
	inBubble(t, options{config: func(c *Config) { c.CommitAge = time.Hour }}, func(h *harness) {
		h.nodes.Node(2).SetDown(true)
		h.put("key", 20<<10)
		h.nodes.Node(2).SetDown(false)
		b := h.blob("key")
		for i := range b.Digests {
			if h.w.drive(b, uint8(i)).ID == 2 {
				h.write(b, i, make([]byte, 12<<10))
			}
		}
		h.delete("key")
		h.run()
		h.within(20*time.Minute, "the row is gone", func() bool { return h.garbage() == 0 })
		if n := h.nodes.Shards(); n != 0 {
			t.Errorf("%d shards are left", n)
		}
	})
}

func TestABlobOfUnknownPlaceIsAskedOfEveryDrive(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		id := ident.New()
		for i := range 4 {
			b := &metadata.Blob{ID: id, PG: ident.PG(3), K: 2, M: 2, CellSize: 64 << 10, Size: 20 << 10}
			h.write(b, i, make([]byte, 12<<10))
		}
		if _, err := h.router.CommandByID(context.Background(), h.bucket(), &metadata.Command{Op: metadata.OpAbandon, Key: "key", Blobs: []ident.ID{id}}); err != nil {
			t.Fatal(err)
		}
		h.nodes.Node(4).SetDown(true)
		h.run()
		pass(time.Hour)
		if h.garbage() != 1 || h.nodes.Shards() != 1 {
			t.Fatalf("%d rows, %d shards: a drive was not asked yet", h.garbage(), h.nodes.Shards())
		}
		h.nodes.Node(4).SetDown(false)
		h.w.Kick()
		h.within(time.Second, "the row is gone", func() bool { return h.garbage() == 0 && h.nodes.Shards() == 0 })
	})
}

func TestManyGarbageRowsGoAtHundredsPerSecond(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		for i := range 1000 {
			h.put(fmt.Sprint("key", i), 4<<10)
		}
		for i := range 1000 {
			h.delete(fmt.Sprint("key", i))
		}
		h.slowly()
		h.run()
		h.within(20*time.Minute, "the first row is gone", func() bool { return h.w.Metrics.GarbageBlobs.Load() > 0 })
		h.within(5*time.Second, "all rows are gone", func() bool { return h.w.Metrics.GarbageBlobs.Load() == 1000 })
		if n := h.nodes.Shards(); n != 0 || h.garbage() != 0 {
			t.Errorf("%d shards and %d rows are left", n, h.garbage())
		}
	})
}

// orphaned puts a blob whose commit never comes, and returns that commit.
func (h *harness) orphaned(key string) (commit *metadata.Command) {
	h.t.Helper()
	h.router.onCommand(func(c *metadata.Command) error {
		if c.Op != metadata.OpPut {
			return nil
		}
		d := *c
		commit = &d
		return oerr.E("test", oerr.OutcomeUnknown, nil)
	})
	defer h.router.onCommand(func(*metadata.Command) error { return nil })
	h.tryPut(key, 20<<10)
	if commit == nil || h.nodes.Shards() == 0 {
		h.t.Fatal("nothing was written")
	}
	return commit
}

func verifying(c *Config) {
	c.VerifyInterval, c.GarbageGrace = time.Minute, 24*time.Hour // what goes, goes as an orphan
}

func TestOrphansAreRemovedWhenTheirWriterDisownsThem(t *testing.T) {
	down := oerr.E("test", oerr.Unavailable, nil)
	restarted := func(h *harness) { h.source.edit(func(v *cluster.View) { v.Nodes[1].StartID = ident.New() }) }
	for _, c := range []struct {
		name    string
		disown  bool
		err     error
		prepare func(h *harness)
		removed bool
	}{
		{"disowned", true, nil, nil, true},
		{"still active", false, nil, nil, false},
		{"unreachable with the same start id", false, down, nil, false},
		{"unreachable with a newer start id", false, down, restarted, true},
		{"unreachable and removed", false, down, func(h *harness) { h.source.edit(func(v *cluster.View) { v.Nodes[1].Removed = true }) }, true},
		{"unreachable and unknown", false, down, func(h *harness) { h.source.edit(func(v *cluster.View) { delete(v.Nodes, 1) }) }, false},
		{"unreachable, group 0 too", false, down, func(h *harness) {
			restarted(h)
			var err error = down
			h.source.err.Store(&err)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, options{config: verifying}, func(h *harness) {
				h.put("kept", 20<<10)
				commit := h.orphaned("key")
				before := h.nodes.Node(1).Shards()
				h.disown = func(context.Context, ident.Node, shard.WriterID, ident.ID) (bool, error) { return c.disown, c.err }
				if c.prepare != nil {
					c.prepare(h)
				}
				h.run()
				pass(5 * time.Minute)
				h.whole("kept")
				want := before
				if c.removed {
					want--
				}
				if n := h.nodes.Node(1).Shards(); n != want || h.w.Metrics.Orphans.Load() != int64(before-want) {
					t.Errorf("%d shards on this node, expected %d of %d; %d orphans", n, want, before, h.w.Metrics.Orphans.Load())
				}
				if h.garbage() == 1 != c.removed {
					t.Errorf("%d garbage rows", h.garbage())
				}
				_, err := h.router.CommandByID(context.Background(), h.bucket(), commit)
				if c.removed && !oerr.Is(err, oerr.Abandoned) {
					t.Errorf("late commit: %v, expected that it is refused for ever", err)
				} else if !c.removed && err != nil {
					t.Errorf("late commit: %v", err)
				}
			})
		})
	}
}

func TestACommitBetweenReferencedAndAbandonKeepsTheBlob(t *testing.T) {
	inBubble(t, options{config: verifying}, func(h *harness) {
		commit := h.orphaned("key")
		committed, abandons := false, 0
		h.router.afterQuery(func(q *metadata.Query) {
			if q.Op == metadata.QueryReferenced && !committed {
				committed = true
				if _, err := h.router.CommandByID(context.Background(), h.bucket(), commit); err != nil {
					t.Error(err)
				}
			}
		})
		h.router.onCommand(func(c *metadata.Command) error {
			if c.Op == metadata.OpAbandon {
				abandons++
			}
			return nil
		})
		h.run()
		pass(5 * time.Minute)
		if !committed || abandons != 1 {
			t.Errorf("committed %t, %d proposals to abandon, expected one that found it live", committed, abandons)
		}
		h.whole("key")
		if h.garbage() != 0 || h.w.Metrics.Orphans.Load() != 0 {
			t.Errorf("%d garbage rows, %d orphans", h.garbage(), h.w.Metrics.Orphans.Load())
		}
	})
}

func TestAWriterThatIsStillOpenIsNoOrphan(t *testing.T) {
	inBubble(t, options{config: verifying}, func(h *harness) {
		h.router.onCommand(func(c *metadata.Command) error { // the engine is waiting for its commit
			if c.Op == metadata.OpPut {
				<-time.After(10 * time.Minute)
			}
			return nil
		})
		done := make(chan struct{})
		go func() { defer close(done); h.put("key", 20<<10) }()
		h.run()
		<-done
		h.whole("key")
		if n := h.w.Metrics.Orphans.Load(); n != 0 {
			t.Errorf("%d orphans", n)
		}
	})
}

func TestShardsOfABucketThatIsGoneAreRemovedAfterTheGrace(t *testing.T) {
	inBubble(t, options{config: func(c *Config) { c.VerifyInterval = time.Minute }}, func(h *harness) {
		commit := h.orphaned("key")
		if _, err := h.router.CommandByID(context.Background(), commit.Bucket, &metadata.Command{Op: metadata.OpSealSpan}); err != nil {
			t.Fatal(err)
		}
		h.disown = func(context.Context, ident.Node, shard.WriterID, ident.ID) (bool, error) {
			return false, oerr.E("test", oerr.Unavailable, nil)
		}
		h.run()
		pass(14 * time.Minute)
		if n := h.nodes.Node(1).Shards(); n != 1 {
			t.Fatalf("%d shards before the grace has passed", n)
		}
		h.within(5*time.Minute, "it is gone", func() bool { return h.nodes.Node(1).Shards() == 0 })
	})
}

// A page of headers costs one question to each span.
func TestOrphanPassesAskForManyShardsAtATime(t *testing.T) {
	inBubble(t, options{config: verifying}, func(h *harness) {
		for i := range 300 {
			h.put(fmt.Sprint("key", i), 4<<10)
		}
		asked := 0
		h.router.afterQuery(func(q *metadata.Query) {
			if q.Op == metadata.QueryReferenced {
				asked++
			}
		})
		h.run()
		pass(90 * time.Second)
		if asked == 0 || asked > 2 {
			t.Errorf("%d questions for 300 shards", asked)
		}
	})
}
