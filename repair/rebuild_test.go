package repair

import (
	"context"
	"fmt"
	"testing"
	"time"

	"objstore/cluster"
	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard"
	"objstore/shard/shardtest"
)

func TestARowFromACommitIsLeftAloneUntilItsAgeAndThenRebuilt(t *testing.T) {
	for _, p := range []erasure.Profile{{K: 1, M: 2}, {K: 2, M: 2}, {K: 4, M: 2}} {
		for _, size := range []int{1, 20 << 10, 3<<20 + 17, 9<<20 + 4097} {
			t.Run(fmt.Sprintf("%s of %d bytes", p, size), func(t *testing.T) {
				inBubble(t, options{profile: p}, func(h *harness) {
					h.run()
					h.nodes.Node(2).SetDown(true)
					body := h.put("key", size)
					h.nodes.Node(2).SetDown(false)
					if h.blob("key").Missing == 0 {
						t.Fatal("no shard is missing")
					}
					pass(29 * time.Second)
					if h.repaired() || h.nodes.Node(2).Calls(shardtest.OpStat) > 0 {
						t.Fatal("repair touched a row before its age")
					}
					h.within(10*time.Second, "the row is gone", h.repaired)
					h.whole("key")
					h.expect("key", body)
					if r, l := h.w.Metrics.Rebuilt.Load(), h.w.Metrics.Landed.Load(); r != 1 || l != 0 {
						t.Errorf("%d rebuilt, %d landed", r, l)
					}
				})
			})
		}
	}
}

func TestAShardThatLandedLateIsOnlyAcknowledged(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		h.nodes.Node(2).SetFault(shardtest.Delay(5*time.Second, shardtest.OpCommit))
		h.router.onCommand(func(c *metadata.Command) error {
			if c.Op == metadata.OpLanded {
				return oerr.E("test", oerr.Unavailable, nil)
			}
			return nil
		})
		h.put("key", 20<<10)
		pass(10 * time.Second)
		h.router.onCommand(func(*metadata.Command) error { return nil })
		if h.count().Pending != 1 {
			t.Fatalf("%d rows, expected that of the late shard", h.count().Pending)
		}
		h.run()
		h.within(40*time.Second, "the row is gone", h.repaired)
		h.whole("key")
		if r, l := h.w.Metrics.Rebuilt.Load(), h.w.Metrics.Landed.Load(); r != 0 || l != 1 {
			t.Errorf("%d rebuilt, %d landed", r, l)
		}
	})
}

func TestAWriterStillOpenIsCancelledAndTheRowWaits(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		h.put("key", 20<<10)
		b := h.blob("key")
		h.mem(b, 1).Drop(h.ref(b, 1))
		if _, err := h.mem(b, 1).Create(context.Background(), h.spec(b, 1, 12<<10)); err != nil {
			t.Fatal(err)
		}
		h.report("key", 1)
		h.run()
		pass(time.Second)
		if n := h.nodes.Writers(); n != 0 {
			t.Errorf("%d writers are open", n)
		}
		if h.count().Pending != 1 || h.w.Metrics.Rebuilt.Load() != 0 {
			t.Error("the row did not wait")
		}
		h.within(10*time.Second, "the row is gone", h.repaired)
		h.whole("key")
		if h.events.text() != "" {
			t.Errorf("events: %s", h.events.text())
		}
	})
}

func TestACorruptSourceIsReportedAndAnotherUsed(t *testing.T) {
	for _, size := range []int{20 << 10, 9 << 20} {
		for source := range 4 {
			for target := range 4 {
				if source == target || size > 1<<20 && source+target != 1 {
					continue
				}
				t.Run(fmt.Sprintf("%d bytes, %d of %d", size, source, target), func(t *testing.T) {
					inBubble(t, options{}, func(h *harness) {
						body := h.put("key", size)
						b := h.blob("key")
						length := uint64(20<<10) / 2 &^ 4095
						if size > 1<<20 {
							length = 4 << 20
						}
						h.mem(b, source).Corrupt(h.ref(b, source), length-1)
						h.mem(b, target).Drop(h.ref(b, target))
						h.report("key", target)
						h.run()
						h.within(30*time.Second, "the target is back", h.repaired)
						if !h.has(b, target) {
							t.Error("the target is not as it was committed")
						}
						h.expect("key", body)
						if source < 2 || target < 2 && source == 2 { // it was read
							h.within(30*time.Second, "the source is back", func() bool { return h.repaired() && h.has(b, source) })
						}
					})
				})
			}
		}
	}
}

// A shard may be right in itself and not be what was committed.
func TestASourceThatIsAnotherShardIsFoundByItsDigest(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		h.put("key", 20<<10)
		b := h.blob("key")
		h.write(b, 0, make([]byte, 12<<10))
		h.mem(b, 1).Drop(h.ref(b, 1))
		h.report("key", 1)
		h.run()
		pass(10 * time.Second)
		h.within(10*time.Second, "both are back", func() bool { return h.repaired() && h.has(b, 0) })
		h.whole("key")
		if n := h.nodes.Writers(); n != 0 {
			t.Errorf("%d writers are open", n)
		}
	})
}

func TestFewerThanKShardsAreLostOnceAndComeBackWithAShard(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		body := h.put("key", 20<<10)
		b := h.blob("key")
		kept, _ := h.mem(b, 1).Data(h.ref(b, 1))
		for _, i := range []int{1, 2, 3} {
			h.mem(b, i).Drop(h.ref(b, i))
		}
		h.report("key", 3)
		h.run()
		h.within(30*time.Second, "all three are lost", func() bool { return h.count().Lost == 3 && h.count().Pending == 0 })
		pass(time.Hour)
		if n := h.events.count("shard_lost"); n != 3 || h.w.Metrics.Lost.Load() != 3 || h.w.Metrics.Failed.Load() != 0 {
			t.Errorf("%d losses told of, expected each of 3 once: %s", n, h.events.text())
		}
		if n := h.nodes.Writers() + h.nodes.Node(1).Calls(shardtest.OpCreate) - 1; n > 3 {
			t.Errorf("%d writers were opened for shards that cannot be rebuilt", n)
		}
		if h.count().Lost != 3 {
			t.Errorf("%d lost rows, expected 3 that are kept", h.count().Lost)
		}
		h.write(b, 1, kept)
		h.w.Kick()
		h.within(20*time.Second, "all are back", h.repaired)
		h.whole("key")
		h.expect("key", body)
	})
}

func TestUnreachableNeverCountsAsGone(t *testing.T) {
	for name, away := range map[string]func(h *harness, n ident.Node) func(){
		"down": func(h *harness, n ident.Node) func() {
			h.nodes.Node(n).SetDown(true)
			return func() { h.nodes.Node(n).SetDown(false) }
		},
		"hung": func(h *harness, n ident.Node) func() {
			h.nodes.Node(n).SetFault(shardtest.Hang(shardtest.OpRead))
			return func() { h.nodes.Node(n).SetFault(nil) }
		},
		"believed down": func(h *harness, n ident.Node) func() {
			h.dead.Store(n, true)
			return func() { h.dead.Delete(n) }
		},
		"fenced": func(h *harness, n ident.Node) func() {
			h.nodes.Node(n).SetFault(shardtest.Fail(oerr.DriveFenced, shardtest.OpRead))
			return func() { h.nodes.Node(n).SetFault(nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, options{}, func(h *harness) {
				h.put("key", 20<<10)
				b := h.blob("key")
				h.mem(b, 0).Drop(h.ref(b, 0))
				back := []func(){away(h, h.w.drive(b, 1).Node), away(h, h.w.drive(b, 2).Node), away(h, h.w.drive(b, 3).Node)}
				h.report("key", 0)
				h.run()
				pass(20 * time.Minute)
				if c := h.count(); c.Lost != 0 || c.Pending != 1 || h.w.Metrics.Lost.Load() != 0 || h.events.text() != "" {
					t.Fatalf("%d lost, %d pending, events: %s", c.Lost, c.Pending, h.events.text())
				}
				for _, f := range back {
					f()
				}
				h.within(2*backoffMax, "the row is gone", h.repaired)
				h.whole("key")
			})
		})
	}
}

func TestADriveFormattedAgainGetsItsShardsBack(t *testing.T) {
	inBubble(t, options{config: func(c *Config) { c.VerifyInterval = time.Hour }}, func(h *harness) {
		h.put("key", 20<<10)
		h.nodes.Node(3).Format(3)
		h.run()
		h.within(time.Minute, "the loss is noticed", func() bool { return h.count().Pending == 1 })
		h.source.edit(func(v *cluster.View) { v.Drives[3].Incarnation = 2 })
		h.within(10*time.Minute, "the row is gone", h.repaired)
		h.whole("key")
	})
}

func TestVerifyFindsWhatIsMissingOrWrongAndItIsRebuilt(t *testing.T) {
	inBubble(t, options{config: func(c *Config) { c.VerifyInterval, c.VerifyRate = time.Hour, 64<<20 }}, func(h *harness) {
		var keys []string
		for i := range 6 {
			keys = append(keys, fmt.Sprint("key", i))
			h.put(keys[i], 20<<10+i<<20)
		}
		h.run()
		pass(time.Minute)
		for i, k := range keys {
			b := h.blob(k)
			h.mem(b, i%4).Corrupt(h.ref(b, i%4), 5)
			h.mem(b, (i+1)%4).Drop(h.ref(b, (i+1)%4))
		}
		pass(50 * time.Minute)
		if n := h.w.Metrics.BadShards.Load(); n != 0 {
			t.Errorf("%d bad shards were found before the next pass", n)
		}
		h.within(15*time.Minute, "all were found", func() bool { return h.w.Metrics.BadShards.Load() == 12 })
		h.within(time.Minute, "all are repaired", h.repaired)
		for _, k := range keys {
			h.whole(k)
		}
		if n := h.w.Metrics.Rebuilt.Load(); n != 12 {
			t.Errorf("%d rebuilt, expected 12", n)
		}
	})
}

func TestKickForgetsBackOffs(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		h.put("key", 20<<10)
		b := h.blob("key")
		h.mem(b, 0).Drop(h.ref(b, 0))
		h.mem(b, 0).SetDown(true)
		h.report("key", 0)
		h.run()
		pass(30 * time.Minute)
		h.mem(b, 0).SetDown(false)
		h.w.Kick()
		if took := h.within(time.Second, "the row is gone", h.repaired); took > 200*time.Millisecond {
			t.Errorf("repaired after %s", took)
		}
	})
}

func TestRunEndsAtOnceWhateverHangs(t *testing.T) {
	for _, op := range []shardtest.Op{shardtest.OpStat, shardtest.OpRead, shardtest.OpCreate, shardtest.OpAppend, shardtest.OpCommit, shardtest.OpDelete, shardtest.OpList} {
		t.Run(op.String(), func(t *testing.T) {
			inBubble(t, options{config: func(c *Config) { c.VerifyInterval, c.GarbageGrace = time.Second, 0 }}, func(h *harness) {
				for i := range 40 {
					k := fmt.Sprint("key", i)
					h.put(k, 20<<10)
					if i%4 == 0 {
						h.delete(k)
						continue
					}
					b := h.blob(k)
					h.mem(b, 0).Drop(h.ref(b, 0))
					h.report(k, 0)
				}
				h.nodes.SetFault(shardtest.Hang(op))
				h.run()
				pass(5*time.Second + 1)
				h.stop() // checks that it took no time
			})
		})
	}
}

// slowly gives every call to a drive and every metadata call what they cost on a busy machine.
func (h *harness) slowly() {
	h.nodes.SetFault(shardtest.Delay(5 * time.Millisecond))
	h.router.delay.command.Store(int64(30 * time.Millisecond))
	h.router.delay.query.Store(int64(5 * time.Millisecond))
}

func TestThousandsOfSmallRowsGoAtHundredsPerSecond(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		const rows = 2000
		h.nodes.Node(4).SetDown(true)
		for i := range rows {
			h.put(fmt.Sprint("key", i), 4<<10)
		}
		h.nodes.Node(4).SetDown(false)
		pass(30 * time.Second)
		h.slowly()
		before := h.router.n.commands.Load()
		h.run()
		took := h.within(time.Minute, "all rows are gone", h.repaired)
		if rate := rows / took.Seconds(); rate < 300 {
			t.Errorf("%.0f rows per second", rate)
		}
		if n := h.router.n.commands.Load() - before; n > rows/20 {
			t.Errorf("%d commands for %d rows", n, rows)
		}
	})
}

func TestAStuckDriveDoesNotHoldUpTheOthers(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		for i := range 400 {
			k := fmt.Sprint("key", i)
			h.put(k, 4<<10)
			b := h.blob(k)
			h.mem(b, i%4).Drop(h.ref(b, i%4))
			h.report(k, i%4)
		}
		h.slowly()
		h.nodes.Node(2).SetFault(shardtest.Hang())
		h.run()
		stuck := int64(0)
		for i := range 400 {
			if b := h.blob(fmt.Sprint("key", i)); h.w.drive(b, uint8(i%4)).ID == 2 {
				stuck++
			}
		}
		h.within(45*time.Second, "the rows of the other drives are gone", func() bool { return h.count().Pending == stuck })
		h.nodes.Node(2).SetFault(nil)
		h.w.Kick()
		h.within(30*time.Second, "all rows are gone", h.repaired)
	})
}

func TestRowsThatWaitAreNotScannedAllTheTime(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		h.nodes.Node(4).SetDown(true)
		for i := range 600 {
			h.put(fmt.Sprint("key", i), 4<<10)
		}
		h.dead.Store(ident.Node(4), true)
		h.router.delay.query.Store(int64(time.Second))
		h.run()
		pass(30 * time.Minute)
		if n := h.router.n.queries.Load(); n > 30*60/scanShare+100 {
			t.Errorf("%d queries of a second each in 30 minutes", n)
		}
	})
}

// More shards than one command may name are found missing in one page.
func TestReportsComeInBatchesThatACommandMayHave(t *testing.T) {
	inBubble(t, options{profile: erasure.Profile{K: 1, M: 7}, config: func(c *Config) { c.VerifyInterval = time.Hour }}, func(h *harness) {
		for i := range 160 {
			k := fmt.Sprint("key", i)
			h.put(k, 4<<10)
			b := h.blob(k)
			for i := range 7 {
				h.mem(b, i).Drop(h.ref(b, i))
			}
		}
		h.run()
		h.within(time.Minute, "all were found", func() bool { return h.w.Metrics.BadShards.Load() == 160*7 })
		h.within(time.Minute, "all are repaired", h.repaired)
		if n := h.w.Metrics.Rebuilt.Load(); n != 160*7 || h.events.text() != "" {
			t.Errorf("%d rebuilt, events: %s", n, h.events.text())
		}
	})
}

// holding is a dialer whose writers keep what is appended until the commit, as a transport may for small shards.
type holding struct{ shard.Dialer }

type holdingEndpoint struct{ shard.Endpoint }

type holdingWriter struct {
	shard.Writer
	held []*shard.Buf
}

func (d holding) Endpoint(n ident.Node, length uint64) (shard.Endpoint, string) {
	ep, name := d.Dialer.Endpoint(n, length)
	return holdingEndpoint{ep}, name
}

func (e holdingEndpoint) Create(ctx context.Context, spec shard.Spec) (shard.Writer, error) {
	w, err := e.Endpoint.Create(ctx, spec)
	return &holdingWriter{Writer: w}, err
}

func (w *holdingWriter) Append(ctx context.Context, buf *shard.Buf, data []byte, crcs []uint32) error {
	buf.Retain()
	w.held = append(w.held, buf)
	return w.Writer.Append(ctx, buf, data, crcs)
}

func (w *holdingWriter) release() {
	for _, b := range w.held {
		b.Release()
	}
	w.held = nil
}

func (w *holdingWriter) Commit(ctx context.Context) (shard.Ack, error) {
	defer w.release()
	return w.Writer.Commit(ctx)
}

func (w *holdingWriter) Abort(cause error) { w.release(); w.Writer.Abort(cause) }

func TestRebuildsDoNotWaitForEachOthersBuffers(t *testing.T) {
	inBubble(t, options{pool: 8 << 20, dialer: func(d shard.Dialer) shard.Dialer { return holding{d} }}, func(h *harness) {
		for i := range 12 {
			k := fmt.Sprint("key", i)
			h.put(k, 2<<20)
			b := h.blob(k)
			h.mem(b, 0).Drop(h.ref(b, 0))
			h.report(k, 0)
		}
		h.slowly()
		h.run()
		h.within(10*time.Second, "all are repaired", h.repaired)
	})
}

func TestAnOutcomeThatCouldNotBeWrittenIsWrittenLater(t *testing.T) {
	inBubble(t, options{}, func(h *harness) {
		h.put("key", 20<<10)
		b := h.blob("key")
		h.mem(b, 0).Drop(h.ref(b, 0))
		h.report("key", 0)
		h.router.onCommand(func(*metadata.Command) error { return oerr.E("test", oerr.OutcomeUnknown, nil) })
		h.run()
		h.within(time.Second, "the shard is there", func() bool { return h.has(b, 0) })
		before := h.router.n.commands.Load()
		pass(time.Minute)
		if h.count().Pending != 1 {
			t.Fatal("the row is gone")
		}
		if n := h.router.n.commands.Load() - before; n > 6 {
			t.Errorf("%d proposals in a minute: the row did not wait", n)
		}
		h.router.onCommand(func(*metadata.Command) error { return nil })
		h.within(backoffMax, "the row is gone", h.repaired)
		if r, l := h.w.Metrics.Rebuilt.Load(), h.w.Metrics.Landed.Load(); r != 1 || l < 1 {
			t.Errorf("%d rebuilt, %d landed", r, l)
		}
	})
}
