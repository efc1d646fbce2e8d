package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"objstore/internal/oerr"
	"objstore/shard"
)

func newDrive(cfg *Config, dc DriveConfig) *drive {
	l := cfg.Limits.withDefaults()
	d := &drive{cfg: dc, closing: make(chan struct{}), fs: cfg.FS, limits: l,
		owner: owner{Cluster: cfg.Cluster, UUID: dc.UUID, Drive: dc.ID, Incarnation: dc.Incarnation}}
	d.claims = newClaims(l.MaxWriters)
	d.fds = newFDCache(l.OpenFiles, maxCachedCRCs)
	d.reads = newIOPool(l.ReadWorkers, l.MaxWaiting)
	d.writes = newIOPool(l.WriteWorkers, l.MaxWriters)
	d.bounce, d.copies = shard.NewPool(l.BounceBytes), shard.NewPool(copyBytes)
	d.space.fs, d.space.path, d.space.reserve = cfg.FS, dc.Path, dc.Reserve
	d.commit, d.filer, d.rec = newCommitter(d), newFiler(d), newReclaimer(d)
	if cfg.OnFence != nil {
		d.onFence = func(cause error) { cfg.OnFence(dc.ID, cause) }
	}
	return d
}

// open returns an error only for what an operator has to put right; a drive that cannot be read is left failed.
func (d *drive) open() error {
	err := d.tryOpen()
	if err == nil {
		if d.cfg.Fenced {
			d.fenceQuietly(errors.New("the cluster has this drive as fenced"))
		}
		d.wg.Add(3)
		go d.commit.run()
		go d.filer.run()
		go d.rec.run()
		d.rec.signal()
		return nil
	}
	if d.index != nil {
		d.index.close() // it failed already: the first error is the one to report
		d.index = nil
	}
	if d.log.active != nil {
		d.log.active.Close()
		d.log.active = nil
	}
	d.headers.release()
	err = fmt.Errorf("drive %d at %s: %w", d.cfg.ID, d.cfg.Path, err)
	if oerr.Is(err, oerr.InvalidArgument) {
		d.failed.Store(&err)
		return err
	}
	d.failed.Store(&err)
	d.fence(err)
	return nil
}

func (d *drive) fenceQuietly(cause error) { d.fenced.CompareAndSwap(nil, &cause) }

func (d *drive) tryOpen() error {
	var err error
	if d.super, err = readSuper(d.fs, d.cfg.Path); err != nil {
		if isNotExist(err) {
			return oerr.E("store.open", oerr.InvalidArgument, fmt.Errorf("the folder is not formatted for shards: %w", err))
		}
		return err
	}
	if err := checkOwner("store.open", d.cfg.Path, d.super.owner, d.owner); err != nil {
		return err
	}
	if err := d.probeDirect(); err != nil {
		return err
	}
	var fresh bool
	if d.index, fresh, err = openIndex(d.cfg.Path, d.owner, d.fence); err != nil {
		return err
	}
	if err := d.recover(fresh); err != nil {
		return err
	}
	return d.remakeBallast()
}

// remakeBallast allocates a ballast that was released, when that leaves the reserve whole.
func (d *drive) remakeBallast() error {
	f, err := d.fs.Open(ballastPath(d.cfg.Path), 0)
	if err == nil {
		return f.Close()
	}
	if !isNotExist(err) || d.space.check(d.super.Ballast) != nil {
		return nil
	}
	if err := makeBallast(d.fs, d.cfg.Path, d.super.Ballast); err != nil && !isNoSpace(err) && !isUnsupported(err) {
		return err
	}
	d.space.refresh()
	return nil
}

// close ends a drive: writers first, then what feeds on them.
func (d *drive) close(calls *atomic.Int64) error {
	if d.failed.Load() != nil {
		return waitZero(&d.jobs, time.Now().Add(d.limits.CloseWithin))
	}
	deadline := time.Now().Add(d.limits.CloseWithin)
	close(d.closing)
	if err := d.endClaims(deadline); err != nil {
		return err
	}
	if err := waitZero(calls, deadline); err != nil {
		return err
	}
	if err := d.endClaims(deadline); err != nil { // of calls that were under way
		return err
	}
	d.commit.stop()
	d.filer.stop()
	close(d.rec.quit)
	done := make(chan struct{})
	go func() { d.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Until(deadline)):
		return fmt.Errorf("drive %d: a write or sync has not ended", d.cfg.ID)
	}
	if err := waitZero(&d.jobs, deadline); err != nil {
		return err
	}
	return d.release()
}

// endClaims cancels every writer and waits until no claim is held.
func (d *drive) endClaims(deadline time.Time) error {
	cause := oerr.Errorf("store.writer", oerr.Closed, "store is closed")
	for {
		gone := d.claims.cancelAll(cause)
		if gone == nil {
			return nil
		}
		select {
		case <-gone:
		case <-time.After(time.Until(deadline)):
			return fmt.Errorf("drive %d: %d writers or deletes have not ended", d.cfg.ID, d.claims.len())
		}
	}
}

// release closes what is open; nothing is in flight any more.
func (d *drive) release() error {
	var errs []error
	d.fds.closeAll()
	if d.log.active != nil {
		errs = append(errs, d.log.active.Close())
	}
	if d.fenceCause() == nil {
		errs = append(errs, d.index.setClean())
	}
	errs = append(errs, d.index.close())
	d.headers.release()
	d.bounce.Close()
	d.copies.Close()
	return errors.Join(errs...)
}

func waitZero(n *atomic.Int64, deadline time.Time) error {
	for wait := 50 * time.Microsecond; n.Load() != 0; wait = min(2*wait, 10*time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d operations have not ended", n.Load())
		}
		time.Sleep(wait)
	}
	return nil
}
