package store

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

// shutdown makes a file system stop as if the power had gone: FS_IOC_SHUTDOWN without flushing its log
// (linux/fs/ext4/ioctl.c, xfs_fsops.c). What was not synced is lost.
func shutdown(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const fsIOCShutdown, noLogFlush = 0x8004587d, 2
	if err := unix.IoctlSetPointerInt(int(f.Fd()), fsIOCShutdown, noLogFlush); err != nil {
		t.Skipf("shutdown ioctl: %v", err)
	}
}

// history is what was acknowledged before the power went.
type history struct {
	cut     atomic.Bool // the power is going: what is answered from now on counts for nothing
	mu      sync.Mutex
	put     map[rowKey]shard.Spec
	deleted map[rowKey]shard.Spec
}

// TestAcknowledgedShardsSurvivePowerLoss writes, repairs and deletes with many goroutines, cuts the power under them, and looks at what
// is there afterwards, several times on one drive.
func TestAcknowledgedShardsSurvivePowerLoss(t *testing.T) {
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for _, fstype := range []string{"ext4", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			dev := loopFS(t, fstype, 768<<20)
			dir := mount(t, dev, fstype, "", 0)
			h := &history{put: map[rowKey]shard.Spec{}, deleted: map[rowKey]shard.Spec{}}
			r := newRig(t, 1, func(c *Config) {
				c.Drives[0] = DriveConfig{ID: 1, Incarnation: 1, UUID: ident.New(), Path: dir, Reserve: -1, Ballast: -1}
				c.Limits.CheckpointBytes = 3 << 20 // so that some rows are flushed and some are not
			})
			t.Cleanup(func() { r.Store.Close() })
			for round := range rounds {
				before := len(h.put) + len(h.deleted)
				h.cut.Store(false)
				r.workUntilPowerLoss(h, rand.New(rand.NewPCG(seed, uint64(round))), dir)
				t.Logf("close: %v", r.Store.Close()) // whatever it says: the drive is gone
				if err := unix.Unmount(dir, 0); err != nil {
					t.Fatalf("unmount: %v", err)
				}
				if err := unix.Mount(dev, dir, fstype, 0, ""); err != nil {
					t.Fatalf("mount after power loss: %v", err)
				}
				r.open()
				h.verify(t, r)
				t.Logf("round %d: %d shards acknowledged, %d deletes", round, len(h.put), len(h.deleted))
				if len(h.put)+len(h.deleted) == before {
					t.Fatal("nothing was acknowledged: the test shows nothing")
				}
			}
		})
	}
}

func (r *rig) workUntilPowerLoss(h *history, rng *rand.Rand, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range 12 {
		g := rand.New(rand.NewPCG(rng.Uint64(), 2))
		wg.Go(func() {
			for ctx.Err() == nil {
				if !r.step(ctx, h, g) {
					return
				}
			}
		})
	}
	m := r.Metrics()[0]
	goal := m.ShardsWritten + 60 + rng.Int64N(80)
	eventually(r.t, "enough was written", func() bool { return r.Metrics()[0].ShardsWritten >= goal })
	h.cut.Store(true) // a cut takes the process too: nobody hears an answer after it
	shutdown(r.t.(*testing.T), dir)
	wg.Wait()
}

// step does one thing and writes down what was acknowledged; false when the drive is gone.
func (r *rig) step(ctx context.Context, h *history, rng *rand.Rand) bool {
	switch n := rng.IntN(10); {
	case n < 7:
		spec := specOf(1, []uint64{4 << 10, 64 << 10, 300 << 10, 1 << 20, 2<<20 + 4096}[rng.IntN(5)])
		if _, err := r.put(ctx, spec, 512<<10); err != nil {
			return !oerr.Is(err, oerr.DriveFenced) && oerr.Is(err, oerr.DriveFull)
		}
		if h.cut.Load() {
			return false
		}
		h.mu.Lock()
		h.put[keyOf(spec.Blob, spec.Index)] = spec
		h.mu.Unlock()
	default:
		h.mu.Lock()
		var key rowKey
		var spec shard.Spec
		for key, spec = range h.put {
			break
		}
		delete(h.put, key) // nobody else works on it meanwhile
		h.mu.Unlock()
		if spec.Length == 0 {
			return true
		}
		if n == 9 {
			again := spec
			again.Repair = true
			_, err := r.put(ctx, again, 512<<10)
			h.mu.Lock()
			h.put[key] = spec // done or not, the old shard or the new one has to be there
			h.mu.Unlock()
			return err == nil || oerr.Is(err, oerr.DriveFull)
		}
		if err := r.Delete(ctx, []shard.Ref{spec.Ref})[0]; err != nil || h.cut.Load() {
			return false
		}
		h.mu.Lock()
		h.deleted[key] = spec
		h.mu.Unlock()
	}
	return true
}

func (h *history) verify(t *testing.T, r *rig) {
	t.Helper()
	for _, spec := range h.put {
		if info := r.state(&spec, true); info.State != shard.StateOK {
			t.Errorf("an acknowledged shard of %d bytes is %v after power loss: %s %s", spec.Length, info.State, info.Path, info.Detail)
			continue
		}
		if err := r.check(&spec); err != nil {
			t.Errorf("an acknowledged shard of %d bytes: %v", spec.Length, err)
		}
	}
	for _, spec := range h.deleted {
		if info := r.state(&spec, false); info.State != shard.StateMissing {
			t.Errorf("a deleted shard of %d bytes is %v after power loss", spec.Length, info.State)
		}
	}
	// Whatever else is listed is whole.
	err := r.Verify(testCtx(t), 1, 0, func(info shard.Info) {
		if info.State != shard.StateOK {
			t.Errorf("shard %s of %d bytes is listed and %v: %s", info.Blob, info.Length, info.State, info.Detail)
		}
	})
	if err != nil {
		t.Error(err)
	}
}
