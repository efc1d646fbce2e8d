package store

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

// mount mounts a file system for the test; without the right to do so the test is skipped with the kernel's answer.
func mount(t *testing.T, source, fstype, data string, flags uintptr) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(source, dir, fstype, flags, data); err != nil {
		if err == unix.EPERM || err == unix.ENODEV {
			t.Skipf("mount of %s: %v (uid %d)", fstype, err, os.Getuid())
		}
		t.Fatalf("mount of %s: %v", fstype, err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// loopFS makes a file system in a file and mounts it through a loop device.
func loopFS(t *testing.T, fstype string, size int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skipf("loop devices need root, this is uid %d", os.Getuid())
	}
	img := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(img, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(img, size); err != nil {
		t.Fatal(err)
	}
	mkfs, err := exec.LookPath("mkfs." + fstype)
	if err != nil {
		t.Skipf("no mkfs.%s: %v", fstype, err)
	}
	if out, err := exec.Command(mkfs, "-q", img).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", mkfs, err, out)
	}
	out, err := exec.Command("losetup", "--find", "--show", img).CombinedOutput()
	if err != nil {
		t.Skipf("losetup: %v: %s", err, out)
	}
	dev := string(out[:len(out)-1])
	t.Cleanup(func() { exec.Command("losetup", "-d", dev).Run() })
	return dev
}

func TestADriveOf256MiBWorksWithItsDefaults(t *testing.T) {
	for _, fstype := range []string{"ext4", "tmpfs", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			var dir string
			if fstype == "tmpfs" {
				dir = mount(t, "none", "tmpfs", "size=256m", 0)
			} else {
				size := int64(256 << 20)
				if fstype == "xfs" {
					size = 300 << 20 // mkfs.xfs makes none smaller
				}
				dir = mount(t, loopFS(t, fstype, size), fstype, "", 0)
			}
			r := newRig(t, 1, func(c *Config) {
				c.Drives[0] = DriveConfig{ID: 1, Incarnation: 1, UUID: ident.New(), Path: dir}
			})
			t.Cleanup(func() { r.Store.Close() }) // before the unmount
			st := r.Status()[0]
			t.Logf("%s: %+v", fstype, st)
			if st.State != "ok" || st.Reserve == 0 || st.Ballast == 0 || (fstype != "tmpfs" && !st.DirectIO) {
				t.Fatalf("status %+v", st)
			}
			fillUp(t, r)
		})
	}
}

// fillUp writes until the drive is full, and then checks what a full drive must still do.
func fillUp(t *testing.T, r *rig) {
	var specs []shard.Spec
	var small, large error
	for small == nil || large == nil {
		for i, n := range []uint64{512 << 10, 4 << 20} {
			if (i == 0 && small != nil) || (i == 1 && large != nil) {
				continue
			}
			spec := specOf(1, n)
			_, err := r.put(testCtx(t), spec, 1<<20)
			if err == nil {
				specs = append(specs, spec)
			} else if i == 0 {
				small = err
			} else {
				large = err
			}
		}
		if len(specs) > 1000 {
			t.Fatal("the drive does not fill up")
		}
	}
	wantKind(t, small, oerr.DriveFull)
	wantKind(t, large, oerr.DriveFull)
	st := r.Status()[0]
	if st.Free < st.Reserve-(2<<20) {
		t.Fatalf("%d bytes free, %d are reserved", st.Free, st.Reserve)
	}
	for i := range specs {
		r.mustCheck(&specs[i])
	}
	if err := r.ReleaseBallast(1); err != nil {
		t.Fatal(err)
	}
	// Somebody else takes what is left of the drive: deletes still work, and free it.
	var refs []shard.Ref
	for i := range specs {
		refs = append(refs, specs[i].Ref)
	}
	for i, err := range r.Delete(testCtx(t), refs) {
		if err != nil {
			t.Fatalf("delete %d on a full drive: %v", i, err)
		}
	}
	eventually(t, "the space is back", func() bool {
		r.order[0].space.refresh()
		return r.Status()[0].Free > st.Free+int64(len(specs))*(200<<10)
	})
	spec := specOf(1, 4<<20)
	r.mustPut(spec)
	r.mustCheck(&spec)
}

func TestADeleteOnADriveWithoutAnyRoomForASegmentStillWorks(t *testing.T) {
	r := newRig(t, 1, nil)
	spec := specOf(1, 512<<10)
	r.mustPut(spec)
	d := r.order[0]
	for d.log.room() >= headerSize { // fill the segment to its last page
		n := min(d.log.room()-headerSize, 512<<10)
		if n < headerSize {
			break
		}
		r.mustPut(specOf(1, uint64(n)))
	}
	d.space.mu.Lock()
	d.space.reserve = 1 << 60
	d.space.mu.Unlock()
	_, err := r.put(testCtx(t), specOf(1, 512<<10), 1<<20)
	wantKind(t, err, oerr.DriveFull)
	for range 3 {
		if err := r.Delete(testCtx(t), []shard.Ref{spec.Ref})[0]; err != nil {
			t.Fatal(err)
		}
	}
	r.crash()
	r.open()
	if info := r.state(&spec, false); info.State != shard.StateMissing {
		t.Fatalf("state %v", info.State)
	}
}

func TestHolesArePunchedAndDeadSegmentsUnlinked(t *testing.T) {
	r := newRig(t, 1, onDisk(t))
	d := r.order[0]
	var specs []shard.Spec
	for range 20 { // about three segments
		spec := specOf(1, 512<<10)
		r.mustPut(spec)
		specs = append(specs, spec)
	}
	keep := specs[10] // in the second segment
	var refs []shard.Ref
	for i := range specs {
		if i != 10 {
			refs = append(refs, specs[i].Ref)
		}
	}
	first := r.state(&specs[0], false).Path
	info := r.state(&keep, false)
	for _, err := range r.Delete(testCtx(t), refs) {
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the first segment is gone", func() bool {
		_, err := os.Stat(first)
		return err != nil
	})
	eventually(t, "the holes of the second are punched", func() bool {
		var st syscall.Stat_t
		return syscall.Stat(info.Path, &st) == nil && st.Blocks*512 < 1<<20
	})
	eventually(t, "the index has no holes left", func() bool {
		h, err := d.index.holes(10)
		return err == nil && len(h) == 0
	})
	r.mustCheck(&keep)
	r.crash()
	os.RemoveAll(r.cfg.Drives[0].Path + "/index")
	r.open()
	r.mustCheck(&keep)
	if n := r.Status()[0].Shards; n != 1 {
		t.Fatalf("%d shards after the rebuild, expected 1", n)
	}
}

func TestAReadThatMayUseARecordKeepsItFromBeingPunched(t *testing.T) {
	r := newRig(t, 1, nil)
	d := r.order[0]
	spec := specOf(1, 512<<10)
	r.mustPut(spec)
	info := r.state(&spec, false)
	first := func() bool { // the record's header is still there
		b := make([]byte, headerSize)
		f, err := os.Open(info.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.ReadAt(b, int64(info.Offset)); err != nil {
			t.Fatal(err)
		}
		return !isZero(b)
	}
	e := d.gate.enter()
	if err := r.Delete(testCtx(t), []shard.Ref{spec.Ref})[0]; err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reclaimer waits for the read", func() bool { return d.gate.epoch.Load() != e })
	if !first() {
		t.Fatal("the record was punched under a read")
	}
	d.gate.leave(e)
	eventually(t, "the record is punched", func() bool { return !first() })
}

func TestHolesThatACrashLeftArePunchedLater(t *testing.T) {
	fs := newFaultFS()
	r := newRig(t, 1, func(c *Config) { c.FS = fs })
	spec, keep := specOf(1, 512<<10), specOf(1, 4096)
	r.mustPut(spec)
	r.mustPut(keep)
	info := r.state(&spec, false)
	e := r.order[0].gate.enter() // a read that does not end keeps the reclaimer from punching
	if err := r.Delete(testCtx(t), []shard.Ref{spec.Ref})[0]; err != nil {
		t.Fatal(err)
	}
	r.crash()
	r.order[0].gate.leave(e)
	r.open()
	eventually(t, "the hole is punched", func() bool {
		b := make([]byte, headerSize)
		f, err := os.Open(info.Path)
		if err != nil {
			return false
		}
		defer f.Close()
		_, err = f.ReadAt(b, int64(info.Offset))
		return err == nil && isZero(b)
	})
	r.mustCheck(&keep)
}

func TestConcurrentDeletesNeverGiveWrongBytes(t *testing.T) {
	r := newRig(t, 1, onDisk(t))
	var specs []shard.Spec
	for i := range 60 {
		spec := specOf(1, 64<<10)
		if i%10 == 0 {
			spec.Length = 1 << 20
		}
		r.mustPut(spec)
		specs = append(specs, spec)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for g := range 4 {
		wg.Go(func() {
			for i := g; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := r.check(&specs[i%len(specs)]); err != nil && !oerr.Is(err, oerr.ShardMissing) {
					errs <- fmt.Errorf("read beside deletes: %w", err)
					return
				}
			}
		})
	}
	for i := range specs {
		if err := r.Delete(testCtx(t), []shard.Ref{specs[i].Ref})[0]; err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the reclaimer is through", func() bool {
		h, err := r.order[0].index.holes(1)
		return err == nil && len(h) == 0
	})
	close(stop)
	wg.Wait()
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
}

func TestVerifyFindsWhatIsWrongAtItsPace(t *testing.T) {
	r := newRig(t, 1, nil)
	var specs []shard.Spec
	for i := range 12 {
		spec := specOf(1, lengths[i%3])
		if i >= 10 {
			spec.Length = 1 << 20
		}
		r.mustPut(spec)
		specs = append(specs, spec)
	}
	info := r.state(&specs[4], false)
	flip(t, info.Path, int64(info.Offset)+headerSize+9)
	if err := os.Remove(r.state(&specs[11], false).Path); err != nil {
		t.Fatal(err)
	}
	got := map[rowKey]shard.Info{}
	var size int64
	for i := range specs {
		size += int64(specs[i].Length)
	}
	start := time.Now()
	if err := r.Verify(testCtx(t), 1, size*4, func(i shard.Info) { got[keyOf(i.Blob, i.Index)] = i }); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Fatalf("a pass over %d bytes at %d bytes/s took %s", size, size*4, took)
	}
	for i := range specs {
		want := shard.StateOK
		switch i {
		case 4:
			want = shard.StateCorrupt
		case 11:
			want = shard.StateMissing
		}
		k := keyOf(specs[i].Blob, specs[i].Index)
		if g, ok := got[k]; !ok || g.State != want {
			t.Fatalf("shard %d is %v (%s), expected %v", i, g.State, g.Detail, want)
		}
	}
}
