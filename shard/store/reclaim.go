package store

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reclaimer gives space back: one goroutine punches the holes that deletes left, unlinks segments without a live
// record, and flushes the index at checkpoints.
//
// The order makes a delete stick whatever is lost in a crash, the index included. A tombstone may go (with its segment) only
// when the records it takes back are gone from the drive: holes are punched and synced, in the order in which they were
// asked for, before a segment that was full at that time is unlinked; and rows that could still point into a segment are
// flushed away before.
type reclaimer struct {
	d    *drive
	wake chan struct{}
	quit chan struct{}
	mu   struct {
		sync.Mutex
		holes      []hole
		dead       []uint64
		more       bool // further holes are in the index alone
		checkpoint bool
	}
}

func newReclaimer(d *drive) *reclaimer {
	return &reclaimer{d: d, wake: make(chan struct{}, 1), quit: make(chan struct{})}
}

func (r *reclaimer) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// punch queues holes. They are in the index too, so that what does not fit here is found there later.
func (r *reclaimer) punch(holes []hole) {
	if len(holes) == 0 {
		return
	}
	r.mu.Lock()
	if len(r.mu.holes)+len(holes) > maxHoles || r.mu.more {
		r.mu.more = true
	} else {
		r.mu.holes = append(r.mu.holes, holes...)
	}
	r.mu.Unlock()
	r.signal()
}

// dead queues a full segment that has no live record.
func (r *reclaimer) dead(segment uint64) {
	r.mu.Lock()
	r.mu.dead = append(r.mu.dead, segment)
	r.mu.Unlock()
	r.signal()
}

func (r *reclaimer) askCheckpoint() {
	r.mu.Lock()
	r.mu.checkpoint = true
	r.mu.Unlock()
	r.signal()
}

func (r *reclaimer) run() {
	defer r.d.wg.Done()
	for {
		select {
		case <-r.wake:
		case <-r.quit:
			return
		}
		if !r.round() { // readers in the way, or more to do than one round takes
			r.signal()
		}
		select {
		case <-time.After(reclaimEvery): // collects what comes meanwhile: one sync for many holes
		case <-r.quit:
			return
		}
	}
}

// round does what is queued; false when some of it is left.
func (r *reclaimer) round() bool {
	d := r.d
	if d.fenceCause() != nil {
		return true
	}
	// Before the queue is looked at: a segment that is full now has queued the holes of its tombstones.
	active := d.log.activeNumber()
	r.mu.Lock()
	holes, dead, more, checkpoint := r.mu.holes, r.mu.dead, r.mu.more, r.mu.checkpoint
	r.mu.holes, r.mu.dead, r.mu.more, r.mu.checkpoint = nil, nil, false, false
	r.mu.Unlock()
	if checkpoint {
		if err := d.index.flush(); err != nil {
			r.failed(err)
			return true
		}
		d.met.checkpoints.Add(1)
	}
	if more {
		// The queue overflowed: the index knows all of them, in no order, so nothing is unlinked in this round.
		var err error
		if holes, err = d.index.holes(maxHoles); err != nil {
			d.fence(err)
			return true
		}
	}
	bySegment := map[uint64][]hole{}
	gone := map[uint64]bool{}
	for _, n := range dead {
		gone[n] = true
	}
	for _, h := range holes {
		bySegment[h.segment] = append(bySegment[h.segment], h)
		if h.segment < active && d.index.live(h.segment) == 0 {
			gone[h.segment] = true
		}
	}
	if len(holes)+len(gone) == 0 {
		return true
	}
	if !d.gate.drain(gateWait) {
		r.putBack(holes, dead, more)
		return false
	}
	for n, hs := range bySegment {
		if gone[n] && !more {
			continue
		}
		if err := r.punchSegment(n, hs); err != nil {
			r.failed(err)
			return true
		}
	}
	if more {
		for n := range gone {
			r.dead(n)
		}
		d.space.refresh()
		return r.rescan(len(holes) == maxHoles)
	}
	if len(gone) > 0 {
		if err := r.unlink(gone, bySegment); err != nil {
			r.failed(err)
			r.putBack(nil, dead, true)
			return true
		}
	}
	d.space.refresh()
	return true
}

// failed fences, but for a full drive: then what was to be done is found again at the next open.
func (r *reclaimer) failed(err error) {
	if !isNoSpace(err) && !isTransient(err) {
		r.d.fence(err)
	}
}

func (r *reclaimer) putBack(holes []hole, dead []uint64, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.dead = append(dead, r.mu.dead...)
	if more || len(holes)+len(r.mu.holes) > maxHoles {
		r.mu.holes, r.mu.more = nil, true
		return
	}
	r.mu.holes = append(holes, r.mu.holes...)
}

// rescan keeps reading holes from the index until it has no more than fit.
func (r *reclaimer) rescan(more bool) bool {
	if more {
		r.mu.Lock()
		r.mu.more, r.mu.holes = true, nil
		r.mu.Unlock()
	}
	return false
}

// punchSegment punches holes in one segment and syncs it before the index forgets them.
func (r *reclaimer) punchSegment(number uint64, holes []hole) error {
	d := r.d
	f, err := d.fs.Open(d.segmentPath(number), syscall.O_RDWR)
	if isNotExist(err) {
		return d.index.dropHoles(holes)
	}
	if err != nil {
		return err
	}
	for _, h := range holes {
		if err = d.punchHole(f, h); err != nil {
			break
		}
		d.met.punched.Add(int64(h.length))
	}
	if err == nil {
		err = f.Fdatasync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return d.index.dropHoles(holes)
}

func (d *drive) punchHole(f File, h hole) error {
	err := f.Fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(h.offset), int64(h.length))
	if !isUnsupported(err) {
		return err
	}
	// No holes here: the space comes back with the whole segment. Without its header the record is gone all the same.
	return writeFull(f, [][]byte{make([]byte, headerSize)}, int64(h.offset))
}

// unlink removes dead segments.
func (r *reclaimer) unlink(gone map[uint64]bool, holes map[uint64][]hole) error {
	d := r.d
	if err := d.index.flush(); err != nil {
		return err
	}
	for n := range gone {
		d.fds.forget(segmentFD(n))
		if err := d.fs.Remove(d.segmentPath(n)); err != nil && !isNotExist(err) {
			return err
		}
		d.met.segmentsRemoved.Add(1)
	}
	if err := d.fs.SyncDir(d.segmentsDir()); err != nil {
		return err
	}
	for n := range gone {
		if err := d.index.dropHoles(holes[n]); err != nil {
			return err
		}
		if err := d.index.dropSegment(n); err != nil {
			return err
		}
	}
	return nil
}
