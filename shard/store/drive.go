package store

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"objstore/internal/oerr"
	"objstore/shard"
)

// drive is one data folder. Drives share nothing, so that one which hangs or dies takes no other along.
type drive struct {
	cfg    DriveConfig
	owner  owner
	fs     FS
	limits Limits
	super  superblock
	direct bool // O_DIRECT works here

	index   *index
	claims  *claims
	gate    gate
	fds     *fdCache
	reads   *ioPool
	writes  *ioPool
	bounce  *shard.Pool // device reads
	copies  *shard.Pool // appends that cannot be written from where they are
	headers headerPool
	space   space
	log     segmentLog
	commit  *committer
	filer   *filer
	rec     *reclaimer
	met     meters

	minEpoch  atomic.Uint64
	closed    atomic.Bool
	closing   chan struct{} // closed by close
	fenced    atomic.Pointer[error]
	failed    atomic.Pointer[error] // could not be opened: nothing here can be read or said to be absent
	onFence   func(cause error)
	wg        sync.WaitGroup // committer, filer, reclaimer
	jobs      atomic.Int64   // other goroutines: device reads, file writers, fence callbacks
	unflushed atomic.Int64   // bytes stored since the last checkpoint
}

// fence ends writing for good. The first cause stays.
func (d *drive) fence(cause error) {
	if d.fenced.CompareAndSwap(nil, &cause) && d.onFence != nil {
		d.jobs.Add(1)
		go func() {
			defer d.jobs.Add(-1)
			d.onFence(cause)
		}()
	}
}

func (d *drive) fenceCause() error {
	if p := d.fenced.Load(); p != nil {
		return *p
	}
	return nil
}

// admitWrite refuses what must not be begun: on a closed, fenced or hanging drive.
func (d *drive) admitWrite(op string) error {
	if d.closed.Load() {
		return oerr.E(op, oerr.Closed, errors.New("store is closed"))
	}
	if cause := d.fenceCause(); cause != nil {
		return oerr.Errorf(op, oerr.DriveFenced, "drive %d is fenced: %w", d.cfg.ID, cause)
	}
	now := time.Now()
	if since := d.oldestWrite(); !since.IsZero() && now.Sub(since) > d.limits.FenceAfter {
		cause := oerr.Errorf("store.drive", oerr.Unavailable, "a write has not ended for %s", now.Sub(since).Round(time.Second))
		d.fence(cause)
		return oerr.Errorf(op, oerr.DriveFenced, "drive %d is fenced: %w", d.cfg.ID, cause)
	}
	if n := d.writes.older(now.Add(-d.limits.StuckAfter)); n >= d.limits.WriteWorkers {
		return oerr.Errorf(op, oerr.Busy, "drive %d: all %d writes in flight are stuck", d.cfg.ID, n)
	}
	return nil
}

// oldestWrite returns when the oldest write or sync still in flight began.
func (d *drive) oldestWrite() time.Time {
	oldest := d.commit.busySince.Load()
	if s := d.filer.busySince.Load(); s != 0 && (oldest == 0 || s < oldest) {
		oldest = s
	}
	for i := range d.writes.since {
		if s := d.writes.since[i].Load(); s != 0 && (oldest == 0 || s < oldest) {
			oldest = s
		}
	}
	if oldest == 0 {
		return time.Time{}
	}
	return time.Unix(0, oldest)
}

// writeFailed turns a failed write, allocation or open into the caller's error, and fences when the drive is to blame.
func (d *drive) writeFailed(op string, err error) error {
	kind := kindOfIO(err)
	if kind == oerr.DriveFenced {
		d.fence(err)
	}
	return oerr.E(op, kind, err)
}

// syncFailed fences whatever the reason: after a failed sync nobody knows what is on the drive.
func (d *drive) syncFailed(op string, err error) error {
	d.fence(err)
	return oerr.E(op, oerr.DriveFenced, err)
}

// stored counts bytes towards the next checkpoint.
func (d *drive) stored(n int64) {
	if d.unflushed.Add(n) >= d.limits.CheckpointBytes {
		d.unflushed.Store(0)
		d.rec.askCheckpoint()
	}
}

func (d *drive) segmentsDir() string { return filepath.Join(d.cfg.Path, "segments") }

// openFlags adds O_DIRECT where it works.
func (d *drive) openFlags(flags int) int {
	if d.direct {
		flags |= unix.O_DIRECT
	}
	return flags
}

// probeDirect finds out whether aligned O_DIRECT writes work in this folder.
func (d *drive) probeDirect() error {
	path := filepath.Join(d.segmentsDir(), "probe")
	defer d.fs.Remove(path)
	f, err := d.fs.Open(path, syscall.O_CREAT|syscall.O_RDWR|unix.O_DIRECT)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	if err != nil {
		return err
	}
	b, err := newAligned(headerSize)
	if err != nil {
		f.Close()
		return err
	}
	_, err = f.Pwritev([][]byte{b}, 0)
	unix.Munmap(b)
	d.direct = err == nil
	if errors.Is(err, syscall.EINVAL) || isNoSpace(err) { // full: decided again at the next open
		err = nil
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
