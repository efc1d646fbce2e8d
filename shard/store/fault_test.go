package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

// faultRig is a rig whose drives go through a faultFS, and that counts what OnFence was told.
func faultRig(t *testing.T, change func(*Config)) (*rig, *faultFS, *atomic.Int32) {
	fs := newFaultFS()
	var fences atomic.Int32
	r := newRig(t, 1, func(c *Config) {
		c.FS = fs
		c.OnFence = func(d ident.Drive, cause error) {
			if d == 1 && cause != nil {
				fences.Add(1)
			}
		}
		if change != nil {
			change(c)
		}
	})
	t.Cleanup(func() { fs.set(nil) }) // before the rig's own close
	return r, fs, &fences
}

func TestAFailedWriteOrSyncFencesTheDriveForGood(t *testing.T) {
	for _, c := range []struct {
		op, part string
		err      error
		length   uint64
	}{
		{"fdatasync", "segments", syscall.EIO, 64 << 10},
		{"fdatasync", "segments", syscall.ENOSPC, 64 << 10}, // at a sync it is too late to say so
		{"pwritev", "segments", syscall.EIO, 64 << 10},
		{"fdatasync", "shards/", syscall.EIO, 1 << 20},
		{"fdatasync", "shards/", syscall.ENOSPC, 1 << 20},
		{"syncdir", "shards/", syscall.EIO, 1 << 20},
		{"pwritev", "shards/", syscall.EIO, 1 << 20},
		{"open", "shards/", syscall.EROFS, 1 << 20},
	} {
		t.Run(fmt.Sprintf("%s of %s: %v", c.op, c.part, c.err), func(t *testing.T) {
			r, fs, fences := faultRig(t, nil)
			small, large := specOf(1, 64<<10), specOf(1, 1<<20)
			r.mustPut(small)
			r.mustPut(large)
			fs.set(failOn(c.op, c.part, c.err))
			_, err := r.put(testCtx(t), specOf(1, c.length), 1<<20)
			wantKind(t, err, oerr.DriveFenced)
			fs.set(nil) // the next sync would succeed: it must not be asked
			for _, n := range []uint64{64 << 10, 1 << 20} {
				_, err = r.put(testCtx(t), specOf(1, n), 1<<20)
				wantKind(t, err, oerr.DriveFenced)
			}
			wantKind(t, r.Delete(testCtx(t), []shard.Ref{small.Ref})[0], oerr.DriveFenced)
			r.mustCheck(&small)
			r.mustCheck(&large)
			eventually(t, "OnFence was called", func() bool { return fences.Load() == 1 })
			if st := r.Status()[0]; st.State != "fenced" || st.Cause == "" {
				t.Fatalf("status %+v, expected fenced with a cause", st)
			}
		})
	}
}

func TestNoSpaceAtAWriteIsAFullDriveAndNoMore(t *testing.T) {
	for _, c := range []struct {
		op, part string
		length   uint64
	}{{"fallocate", "segments", 64 << 10}, {"fallocate", "shards/", 1 << 20}, {"pwritev", "shards/", 1 << 20}, {"open", "shards/", 1 << 20}} {
		t.Run(c.op+" of "+c.part, func(t *testing.T) {
			r, fs, fences := faultRig(t, nil)
			fs.set(failOn(c.op, c.part, syscall.ENOSPC))
			spec := specOf(1, c.length)
			_, err := r.put(testCtx(t), spec, 1<<20)
			wantKind(t, err, oerr.DriveFull)
			fs.set(nil)
			eventually(t, "the claim is gone", func() bool { return r.order[0].claims.len() == 0 })
			if info := r.state(&spec, true); info.State != shard.StateMissing {
				t.Fatalf("state %v, expected missing", info.State)
			}
			r.mustPut(spec)
			r.mustCheck(&spec)
			if fences.Load() != 0 {
				t.Fatal("a full drive was fenced")
			}
		})
	}
}

func TestShortWritesAreContinued(t *testing.T) {
	r, fs, _ := faultRig(t, nil)
	fs.set(failOn("short", "", errors.New("short")))
	for _, n := range []uint64{256 << 10, 3 << 20} {
		spec := specOf(1, n)
		r.mustPut(spec)
		if info := r.state(&spec, true); info.State != shard.StateOK {
			t.Fatalf("%v: %s", info.State, info.Detail)
		}
		r.mustCheck(&spec)
	}
}

func TestUnreadableIsUnknownNeverMissingAndNoFence(t *testing.T) {
	r, fs, fences := faultRig(t, nil)
	for _, n := range []uint64{64 << 10, 1 << 20} {
		spec := specOf(1, n)
		r.mustPut(spec)
		cached := errors.New("nothing is cached")
		fs.set(func(op, path string) error {
			switch op {
			case "pread":
				return syscall.EIO
			case "cached":
				return cached
			}
			return nil
		})
		wantKind(t, r.check(&spec), oerr.Unavailable)
		_, err := r.Stat(testCtx(t), spec.Ref, true)
		wantKind(t, err, oerr.Unavailable)
		fs.set(nil)
		r.mustCheck(&spec)
	}
	if fences.Load() != 0 {
		t.Fatal("a failed read fenced the drive")
	}
}

func TestARemovedFileIsMissingButAnUnmountedDriveIsUnknown(t *testing.T) {
	r := newRig(t, 1, nil)
	spec := specOf(1, 1<<20)
	r.mustPut(spec)
	path := r.cfg.Drives[0].Path
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, r.check(&spec), oerr.Unavailable)
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.state(&spec, false).Path); err != nil {
		t.Fatal(err)
	}
	r.order[0].fds.closeAll()
	wantKind(t, r.check(&spec), oerr.ShardMissing)
	if info := r.state(&spec, true); info.State != shard.StateMissing {
		t.Fatalf("state %v, expected missing", info.State)
	}
	r.mustPut(spec) // not Exists: the row alone is nothing
	r.mustCheck(&spec)
}

// hang blocks operations until the test ends.
func hang(t *testing.T, fs *faultFS, ops ...string) (release func()) {
	ch := make(chan struct{})
	fs.set(func(op, path string) error {
		for _, o := range ops {
			if o == op {
				<-ch
			}
		}
		if op == "cached" {
			return errors.New("nothing is cached")
		}
		return nil
	})
	return func() { fs.set(nil); close(ch) }
}

func TestNothingOutlivesItsDeadlineOnAHangingDrive(t *testing.T) {
	r, fs, fences := faultRig(t, func(c *Config) {
		c.Limits = Limits{ReadWorkers: 2, WriteWorkers: 2, MaxWaiting: 1, StuckAfter: time.Millisecond, FenceAfter: 300 * time.Millisecond}
	})
	small, large := specOf(1, 64<<10), specOf(1, 1<<20)
	r.mustPut(small)
	r.mustPut(large)
	release := hang(t, fs, "pread", "fdatasync", "open")
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	dst := make([]byte, 64<<10)
	busy := 0
	for range 4 {
		_, err := r.Read(short(), shard.ReadRequest{Ref: small.Ref, Length: 64 << 10}, dst)
		switch oerr.KindOf(err) {
		case oerr.Busy:
			busy++
		case oerr.DeadlineExceeded:
		default:
			t.Fatalf("read: %v", err)
		}
	}
	_, err := r.Stat(short(), small.Ref, true)
	wantKind(t, err, oerr.DeadlineExceeded)
	for i := range dst {
		if dst[i] != 0 {
			t.Fatal("a read that was given up wrote into the caller's buffer")
		}
	}
	for _, n := range []uint64{64 << 10, 1 << 20, 1 << 20} {
		_, err := r.put(short(), specOf(1, n), 1<<20)
		wantKind(t, err, oerr.DeadlineExceeded)
	}
	if st := r.Status()[0]; st.Stuck < 3 {
		t.Fatalf("%d operations count as stuck, expected at least 3", st.Stuck)
	}
	eventually(t, "the drive fences itself", func() bool {
		_, err := r.put(short(), specOf(1, 4096), 1<<20)
		return oerr.Is(err, oerr.DriveFenced)
	})
	release()
	eventually(t, "OnFence was called", func() bool { return fences.Load() == 1 })
	for i := range dst {
		if dst[i] != 0 {
			t.Fatal("a read that was given up wrote into the caller's buffer later")
		}
	}
	eventually(t, "every buffer is back", func() bool { return r.pool.InUse() == 0 && r.order[0].bounce.InUse() == 0 })
}

func TestQueuesRefuseInsteadOfGrowing(t *testing.T) {
	r, fs, _ := faultRig(t, func(c *Config) { c.Limits = Limits{MaxQueue: 4, MaxWriters: 12} })
	r.mustPut(specOf(1, 4096)) // makes the segment
	release := hang(t, fs, "fdatasync")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	results := make(chan error, 32)
	for range 32 {
		go func() {
			_, err := r.put(ctx, specOf(1, 4096), 4096)
			results <- err
		}()
	}
	busy := 0
	for busy < 20 {
		err := <-results
		wantKind(t, err, oerr.Busy)
		busy++
	}
	release()
	for range 32 - busy {
		if err := <-results; err != nil && !oerr.Is(err, oerr.Busy) {
			t.Fatal(err)
		}
	}
}

func TestAFailedDriveLeavesTheOthersAlone(t *testing.T) {
	fs := newFaultFS()
	r := newRig(t, 2, func(c *Config) { c.FS = fs })
	a, b := specOf(1, 64<<10), specOf(2, 64<<10)
	r.mustPut(a)
	r.mustPut(b)
	r.crash()
	fs.set(func(op, path string) error {
		if op == "readdir" && filepath.Dir(filepath.Dir(path)) == r.cfg.Drives[0].Path {
			return syscall.EIO
		}
		return nil
	})
	r.open()
	r.mustCheck(&b)
	wantKind(t, r.check(&a), oerr.Unavailable)
	_, err := r.put(testCtx(t), specOf(1, 4096), 4096)
	wantKind(t, err, oerr.Unavailable)
	if st := r.Status(); st[0].State != "failed" || st[1].State != "ok" {
		t.Fatalf("status %+v", st)
	}
	r.close()
	fs.set(nil)
	r.open()
	r.mustCheck(&a)
}

func TestADriveOfSomebodyElseIsRefusedByName(t *testing.T) {
	r := newRig(t, 1, nil)
	_, err := Open(r.cfg)
	wantKind(t, err, oerr.InvalidArgument) // in use
	r.close()
	r.Store = nil
	for _, change := range []func(*Config){
		func(c *Config) { c.Cluster = ident.New() },
		func(c *Config) { c.Drives[0].UUID = ident.New() },
		func(c *Config) { c.Drives[0].Incarnation++ },
		func(c *Config) { c.Drives[0].Path = t.TempDir() },
	} {
		cfg := r.cfg
		cfg.Drives = append([]DriveConfig(nil), r.cfg.Drives...)
		change(&cfg)
		_, err := Open(cfg)
		wantKind(t, err, oerr.InvalidArgument)
	}
}
