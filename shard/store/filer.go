package store

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"objstore/internal/oerr"
)

// filer ends what happens to shard files: one goroutine takes every file that was sealed or is to be unlinked meanwhile,
// syncs each directory once, sets the rows and answers everybody. Its queue holds claims, so it is as bounded as those.
type filer struct {
	d         *drive
	busySince atomic.Int64
	wake      chan struct{}
	mu        struct {
		sync.Mutex
		seals   []*fileWriter
		unlinks []*deletion
		stop    bool
	}
}

func newFiler(d *drive) *filer { return &filer{d: d, wake: make(chan struct{}, 1)} }

func (f *filer) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// seal takes over a file whose data is durable.
func (f *filer) seal(w *fileWriter) {
	f.mu.Lock()
	f.mu.seals = append(f.mu.seals, w)
	f.mu.Unlock()
	f.signal()
}

// unlink takes over a file whose row is gone, durably.
func (f *filer) unlink(x *deletion) {
	f.mu.Lock()
	f.mu.unlinks = append(f.mu.unlinks, x)
	f.mu.Unlock()
	f.signal()
}

// stop ends the goroutine once its queue is empty; nothing may be queued afterwards.
func (f *filer) stop() {
	f.mu.Lock()
	f.mu.stop = true
	f.mu.Unlock()
	f.signal()
}

func (f *filer) run() {
	defer f.d.wg.Done()
	for {
		f.mu.Lock()
		seals, unlinks, stop := f.mu.seals, f.mu.unlinks, f.mu.stop
		f.mu.seals, f.mu.unlinks = nil, nil
		f.mu.Unlock()
		if len(seals)+len(unlinks) == 0 {
			if stop {
				return
			}
			<-f.wake
			continue
		}
		f.busySince.Store(time.Now().UnixNano())
		err := f.batch(seals, unlinks)
		f.busySince.Store(0)
		for _, w := range seals {
			w.finish(err)
		}
		for _, x := range unlinks {
			x.finish(err)
		}
	}
}

func (f *filer) batch(seals []*fileWriter, unlinks []*deletion) error {
	d := f.d
	if cause := d.fenceCause(); cause != nil {
		return oerr.E("store.seal", oerr.DriveFenced, cause)
	}
	dirs := map[string]bool{}
	for _, x := range unlinks {
		path := shardPath(d.cfg.Path, x.key)
		if err := d.fs.Remove(path); err != nil && !isNotExist(err) {
			return d.writeFailed("store.unlink", err)
		}
		dirs[filepath.Dir(path)] = true
	}
	changes := make([]change, 0, len(seals))
	var size int64
	for _, w := range seals {
		dirs[filepath.Dir(w.path)] = true
		changes = append(changes, change{key: w.key, old: w.old, new: &w.row})
		size += w.size
	}
	for dir := range dirs {
		if err := d.fs.SyncDir(dir); err != nil {
			return d.syncFailed("store.seal", err)
		}
		d.met.syncs.Add(1)
	}
	if len(unlinks) > 0 {
		d.space.refresh()
	}
	if len(changes) == 0 {
		return nil
	}
	if _, err := d.index.apply(changes, nil); err != nil {
		return d.syncFailed("store.seal", err)
	}
	for _, w := range seals {
		if w.old != nil { // readers of the replaced file open the new one from here on
			d.fds.forget(fdKey{shard: w.key})
		}
	}
	d.stored(size)
	return nil
}
