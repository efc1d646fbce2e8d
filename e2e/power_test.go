package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	powerBucket  = "power"
	powerImage   = 1 << 30 // bytes of one file system; its file is sparse
	powerDrives  = 2       // of each node: a drive without a busy Raft log is not synced by accident
	powerWriters = 12
	powerKeys    = 24 // of each writer
	powerCuts    = 2  // for each file system
	powerMinAcks = 60 // that the power is not cut before
	powerTimeout = 30 * time.Second

	maxPowerErrors = 20 // that are reported one by one

	// XFS_IOC_GOINGDOWN, which ext4 has as EXT4_IOC_SHUTDOWN, and its argument "drop everything that is not on the device,
	// the log included" (linux/fs/xfs/libxfs/xfs_fs.h, linux/fs/ext4/ext4.h).
	iocGoingDown        = 0x8004587d
	goingDownNoLogFlush = 2
)

// TestPowerLossLosesNothingThatWasAcknowledged takes the power from all four nodes at once, as far as their file systems
// can tell, with writes in flight: every acknowledged object reads back right and no acknowledged delete is undone.
func TestPowerLossLosesNothingThatWasAcknowledged(t *testing.T) {
	needRoot(t)
	need(t, "mkfs.ext4", "e2fsprogs")
	need(t, "mkfs.xfs", "xfsprogs")
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) { powerLoss(t, fs) })
	}
}

func powerLoss(t *testing.T, fs string) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rig := newPowerRig(t, fs)
	c := startCluster(t, options{dir: rig.dir, args: []string{"--drives", fmt.Sprint(powerDrives)}})
	rc := newRawClient(c, powerTimeout)
	defer rc.close()
	makeRawBucket(t, rc, c.Nodes[0].S3, powerBucket)
	var writers []*powerWriter
	for id := range powerWriters {
		writers = append(writers, &powerWriter{id: id, rnd: rand.New(rand.NewPCG(seed, uint64(id))), rc: rc, keys: map[string]*powerKey{}})
	}
	for cut := range powerCuts {
		cutPower(t, c, rig, writers, rand.New(rand.NewPCG(seed, uint64(1000+cut))))
		c.start()
		checkAfterPower(t, c, rc, writers)
	}
}

// powerRig is one file system for each data folder, each in a file of its own.
type powerRig struct {
	dir    string
	images []string
	mounts []string
}

// newPowerRig makes and mounts the file systems where the nodes' data folders will be.
func newPowerRig(t *testing.T, fs string) *powerRig {
	t.Helper()
	rig := &powerRig{dir: t.TempDir()}
	store := t.TempDir()
	t.Cleanup(func() { rig.unmount(t) })
	for i := range 4 * powerDrives {
		name := fmt.Sprintf("n%d/d%d", i/powerDrives+1, i%powerDrives+1)
		image, mount := filepath.Join(store, fmt.Sprintf("%d.img", i)), filepath.Join(rig.dir, name)
		f, err := os.Create(image)
		if err == nil {
			err = errors.Join(f.Truncate(powerImage), f.Close(), os.MkdirAll(mount, 0o700))
		}
		if err != nil {
			t.Fatal(err)
		}
		mustCommand(t, "mkfs."+fs, "-q", image)
		rig.images, rig.mounts = append(rig.images, image), append(rig.mounts, mount)
	}
	rig.mount(t)
	return rig
}

func (rig *powerRig) mount(t *testing.T) {
	t.Helper()
	for i, m := range rig.mounts {
		mustCommand(t, "mount", "-o", "loop,noatime", rig.images[i], m)
	}
}

// unmount unmounts what is mounted. The processes that used it are gone, but the kernel may need a moment.
func (rig *powerRig) unmount(t *testing.T) {
	t.Helper()
	for _, m := range rig.mounts {
		poll(t, time.Now().Add(30*time.Second), "umount of "+m, func() error {
			err := unix.Unmount(m, 0)
			if errors.Is(err, unix.EINVAL) { // not a mount point (any more)
				return nil
			}
			return err
		})
	}
}

// shutdown ends all file systems at the same moment, as near as threads can.
func (rig *powerRig) shutdown() error {
	errs := make([]error, len(rig.mounts))
	dirs := make([]*os.File, len(rig.mounts))
	for i, m := range rig.mounts {
		var err error
		if dirs[i], err = os.Open(m); err != nil {
			return err
		}
		defer dirs[i].Close()
	}
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, d := range dirs {
		wg.Go(func() {
			<-start
			errs[i] = unix.IoctlSetPointerInt(int(d.Fd()), iocGoingDown, goingDownNoLogFlush)
		})
	}
	close(start)
	wg.Wait()
	return errors.Join(errs...)
}

// cutPower lets the writers write, takes the power from all nodes while they do, and mounts what is left.
func cutPower(t *testing.T, c *cluster, rig *powerRig, writers []*powerWriter, rnd *rand.Rand) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	endpoints := make([]string, 0, len(c.Nodes))
	for _, n := range c.Nodes {
		endpoints = append(endpoints, n.S3)
	}
	for _, w := range writers {
		wg.Go(func() { w.run(ctx, endpoints) })
	}
	before := acknowledged(writers)
	poll(t, time.Now().Add(90*time.Second), "acknowledged writes", func() error {
		if n := acknowledged(writers) - before; n < powerMinAcks {
			return fmt.Errorf("%d of %d", n, powerMinAcks)
		}
		return nil
	})
	waitUnlessDone(ctx, 3*time.Second+time.Duration(rnd.IntN(3000))*time.Millisecond)
	// The nodes stop first, with what they have written still on its way: without power nobody lives to see an I/O error,
	// and a node that saw one would have its drive fenced by the others.
	for _, n := range c.Nodes {
		if err := syscall.Kill(n.PID, syscall.SIGSTOP); err != nil {
			t.Fatalf("SIGSTOP %s: %v", n.Name, err)
		}
	}
	if err := rig.shutdown(); err != nil {
		t.Fatalf("shutdown of the file systems: %v", err)
	}
	c.killAll(t)
	cancel()
	wg.Wait()
	rig.unmount(t)
	rig.mount(t)
	t.Logf("power cut after %d acknowledged writes", acknowledged(writers)-before)
}

// killAll ends dev and its nodes with SIGKILL, and waits until they are gone. start brings them back.
func (c *cluster) killAll(t *testing.T) {
	t.Helper()
	for _, n := range c.Nodes {
		if err := syscall.Kill(n.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatalf("SIGKILL %s: %v", n.Name, err)
		}
	}
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("SIGKILL dev: %v", err)
	}
	<-c.exit
	c.cmd = nil
	for _, n := range c.Nodes {
		poll(t, time.Now().Add(20*time.Second), n.Name+" to be gone", func() error {
			// An orphan that nobody reaps stays a zombie, which holds no file open.
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID))
			if err != nil || zombie(stat) {
				return nil
			}
			return fmt.Errorf("pid %d: %s", n.PID, stat)
		})
	}
	// Dev did not live to remove it, and start takes it for the new one.
	if err := os.Remove(filepath.Join(c.dir, "dev.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// zombie reads the state, which follows the name in parentheses (proc_pid_stat(5)).
func zombie(stat []byte) bool {
	i := slices.Index(stat, ')')
	return i >= 0 && i+2 < len(stat) && stat[i+2] == 'Z'
}

// powerWriter writes keys that nobody else writes, one after the other.
type powerWriter struct {
	id   int
	rnd  *rand.Rand
	rc   *rawClient
	n    int
	mu   sync.Mutex
	acks int
	keys map[string]*powerKey
}

// powerKey is what is known of a key.
type powerKey struct {
	now  *powerVersion // the last acknowledged state
	open *powerVersion // what a write of unknown outcome would leave; the key is not used again before a check
}

// powerVersion is a body, or none.
type powerVersion struct {
	id      string
	size    int
	deleted bool
}

func (v *powerVersion) String() string {
	switch {
	case v == nil:
		return "nothing"
	case v.deleted:
		return "deleted"
	}
	return v.id + " of " + strconv.Itoa(v.size) + " bytes"
}

func acknowledged(writers []*powerWriter) int {
	n := 0
	for _, w := range writers {
		w.mu.Lock()
		n += w.acks
		w.mu.Unlock()
	}
	return n
}

func (w *powerWriter) run(ctx context.Context, endpoints []string) {
	for ctx.Err() == nil {
		key := fmt.Sprintf("w%d/%d", w.id, w.rnd.IntN(powerKeys))
		w.mu.Lock()
		k := w.keys[key]
		if k == nil {
			k = &powerKey{now: &powerVersion{deleted: true}}
			w.keys[key] = k
		}
		w.mu.Unlock()
		if k.open != nil {
			if !waitUnlessDone(ctx, time.Millisecond) { // every key may be in doubt: no busy loop
				return
			}
			continue
		}
		v := w.next(key)
		method, body := "PUT", rawBody(v.id, v.size)
		if v.deleted {
			method, body = "DELETE", nil
		}
		a, err := w.rc.do(ctx, endpoints[w.rnd.IntN(len(endpoints))], method, powerBucket, key, "", body)
		w.mu.Lock()
		switch {
		case errors.Is(err, errNotSent) || err == nil && a.status >= 400 && a.status < 500:
		case a.status == 200 || a.status == 204:
			k.now = v
			w.acks++
		default:
			k.open = v
		}
		w.mu.Unlock()
	}
}

// next makes the next state of a key: bodies inside metadata, in segments, in files, in several stripes, or a delete.
func (w *powerWriter) next(key string) *powerVersion {
	w.n++
	v := &powerVersion{id: fmt.Sprintf("%s#%d", key, w.n)}
	switch p := w.rnd.IntN(100); {
	case p < 20:
		v.deleted = true
	case p < 50:
		v.size = 100 + w.rnd.IntN(4<<10)
	case p < 85:
		v.size = 10<<10 + w.rnd.IntN(500<<10)
	case p < 97:
		v.size = 2<<20 + w.rnd.IntN(2<<20)
	default:
		v.size = 9<<20 + w.rnd.IntN(1<<20)
	}
	return v
}

// checkAfterPower reads everything, and settles what was in doubt by what is there: from then on it must stay.
func checkAfterPower(t *testing.T, c *cluster, rc *rawClient, writers []*powerWriter) {
	t.Helper()
	listed := listAll(t, rc, c.Nodes[1].S3, powerBucket)
	checked, inDoubt, bad := 0, 0, 0
	for _, w := range writers {
		for key, k := range w.keys {
			if bad == maxPowerErrors {
				t.Fatal("and perhaps more")
			}
			got := k.read(t, rc, c.Nodes[checked%len(c.Nodes)].S3, key)
			if etag, there := listed[key]; got != nil && (there == got.deleted || there && etag != rawETag(rawBody(got.id, got.size))) {
				bad++
				t.Errorf("%s reads as %s, and LIST shows it: %v, ETag %q", key, got, there, etag)
			}
			if k.open != nil {
				inDoubt++
			}
			checked++
			delete(listed, key)
			if got == nil {
				bad++
				continue
			}
			k.now, k.open = got, nil
		}
	}
	for key := range listed {
		t.Errorf("%s is listed and was never written", key)
	}
	t.Logf("%d keys read back, %d of them were in doubt", checked, inDoubt)
	if t.Failed() {
		t.FailNow() // the next cut would bury the traces
	}
}

// read returns which of the states that the key may have it has; anything else is an error. Too few nodes may lead yet,
// so 503 is tried again for a while; 404 and a wrong body are final.
func (k *powerKey) read(t *testing.T, rc *rawClient, endpoint, key string) (got *powerVersion) {
	t.Helper()
	poll(t, time.Now().Add(60*time.Second), "an answer for "+key, func() error {
		a, err := rc.do(context.Background(), endpoint, "GET", powerBucket, key, "", nil)
		if err != nil || a.status >= 500 {
			return fmt.Errorf("status %d, %v: %s", a.status, err, tail(a.body, 400))
		}
		for _, v := range []*powerVersion{k.now, k.open} {
			if v == nil || v.deleted != (a.status == 404) {
				continue
			}
			if v.deleted || a.status == 200 && string(a.body) == string(rawBody(v.id, v.size)) {
				got = v
				return nil
			}
		}
		t.Errorf("%s via %s: status %d, %d bytes beginning %.40q, expected %s or (in doubt) %s", key, endpoint, a.status, len(a.body), a.body, k.now, k.open)
		return nil
	})
	return got
}

// listAll lists a bucket page by page.
func listAll(t *testing.T, rc *rawClient, endpoint, bucket string) map[string]string {
	t.Helper()
	all := map[string]string{}
	after := ""
	for more := true; more; {
		poll(t, time.Now().Add(60*time.Second), "a page after "+after, func() error {
			a, p, err := rc.list(context.Background(), endpoint, bucket, after, 100)
			if err != nil || a.status != 200 {
				return fmt.Errorf("status %d, %v: %s", a.status, err, tail(a.body, 400))
			}
			for _, o := range p.Contents {
				all[o.Key], after = o.ETag, o.Key
			}
			more = p.IsTruncated && len(p.Contents) > 0
			return nil
		})
	}
	return all
}

func mustCommand(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// needRoot fails without root, as need does without a program.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("OBJ_E2E_ALLOW_SKIP") == "1" {
		t.Skip("mounting file systems needs root, and OBJ_E2E_ALLOW_SKIP=1")
	}
	t.Fatal("mounting file systems needs root; run as root, or set OBJ_E2E_ALLOW_SKIP=1")
}
