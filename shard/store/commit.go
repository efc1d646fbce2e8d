package store

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"objstore/internal/oerr"
)

// committer is the group commit of one drive's segment log: one goroutine takes whatever was queued, writes it at the
// log's end, syncs once, updates the index and answers everybody.
type committer struct {
	d         *drive
	busySince atomic.Int64 // Unix nanoseconds at which the batch in flight began
	wake      chan struct{}
	mu        struct {
		sync.Mutex
		queue []logOp
		stop  bool
	}
}

// logOp is one of: a record to write, a shard to take back.
type logOp struct {
	put *recordWriter
	del *deletion
}

// deletion takes one shard back. The claim on it is held until finish.
type deletion struct {
	d    *drive
	key  rowKey
	old  row
	done chan error // buffered
}

func (x *deletion) finish(err error) {
	x.d.claims.release(x.key)
	x.done <- err
}

func newCommitter(d *drive) *committer { return &committer{d: d, wake: make(chan struct{}, 1)} }

// push queues an operation; Busy when the queue is full, Closed when the committer has stopped.
func (c *committer) push(op logOp) error {
	c.mu.Lock()
	n, stop := len(c.mu.queue), c.mu.stop
	if !stop && n < c.d.limits.MaxQueue {
		c.mu.queue = append(c.mu.queue, op)
	}
	c.mu.Unlock()
	switch {
	case stop:
		return oerr.Errorf("store.commit", oerr.Closed, "store is closed")
	case n >= c.d.limits.MaxQueue:
		return oerr.Errorf("store.commit", oerr.Busy, "drive %d: %d commits are queued", c.d.cfg.ID, n)
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

func (c *committer) stop() {
	c.mu.Lock()
	c.mu.stop = true
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *committer) run() {
	defer c.d.wg.Done()
	var spare []logOp
	for {
		c.mu.Lock()
		ops, stop := c.mu.queue, c.mu.stop
		c.mu.queue = spare[:0]
		c.mu.Unlock()
		if len(ops) == 0 {
			if stop {
				return
			}
			spare = ops
			<-c.wake
			continue
		}
		for rest := ops; len(rest) > 0; {
			n := batchLen(rest)
			c.batch(rest[:n])
			rest = rest[n:]
		}
		clear(ops)
		spare = ops
	}
}

// batchLen bounds a batch in operations and bytes.
func batchLen(ops []logOp) int {
	var size int64
	for i, op := range ops {
		if op.put != nil {
			size += headerSize + int64(op.put.spec.Length)
		}
		if i > 0 && (size > maxBatchBytes || i >= maxBatch) {
			return i
		}
	}
	return len(ops)
}

// batch makes the operations durable and answers them.
func (c *committer) batch(ops []logOp) {
	d := c.d
	start := time.Now()
	c.busySince.Store(start.UnixNano())
	defer c.busySince.Store(0)
	var puts []*recordWriter
	var dels []*deletion
	for _, op := range ops {
		switch {
		case op.del != nil:
			dels = append(dels, op.del)
		case op.put.begin():
			puts = append(puts, op.put)
		}
	}
	// Puts may go to two segments; what follows a failure fails with it.
	var err error
	for err == nil && len(puts)+len(dels) > 0 {
		if cause := d.fenceCause(); cause != nil {
			err = oerr.E("store.commit", oerr.DriveFenced, cause)
			break
		}
		nd := min(len(dels), maxTombstone)
		np := c.fitting(puts, nd > 0)
		if np == 0 && len(puts) > 0 || d.log.active == nil || d.log.size-d.log.pos < headerSize {
			if err = d.roll(len(puts) == 0); oerr.Is(err, oerr.DriveFull) && len(puts)*len(dels) > 0 {
				// A full drive refuses records; it still has to take deletes, or it stays full.
				for _, w := range puts {
					w.finish(err)
				}
				puts, err = nil, nil
			}
			continue
		}
		if err = c.write(puts[:np], dels[:nd]); err == nil {
			puts, dels = puts[np:], dels[nd:]
		}
	}
	for _, w := range puts {
		w.finish(err)
	}
	for _, x := range dels {
		x.finish(err)
	}
	d.met.batches.Add(1)
	d.met.batchOps.Add(int64(len(ops)))
	d.met.commitLatency.observe(time.Since(start))
}

// fitting returns how many of the records fit into the active segment, after a tombstone if there is one.
func (c *committer) fitting(puts []*recordWriter, tombstone bool) int {
	l := &c.d.log
	if l.active == nil {
		return 0
	}
	pos := l.pos
	if tombstone {
		pos += headerSize
	}
	for i, w := range puts {
		pos += headerSize + int64(w.spec.Length)
		if pos > l.size {
			return i
		}
	}
	return len(puts)
}

// write appends a tombstone for dels and the records of puts to the active segment, in one write where iovecs suffice,
// syncs, and updates the index.
func (c *committer) write(puts []*recordWriter, dels []*deletion) error {
	d, l := c.d, &c.d.log
	begin, pos := l.pos, l.pos
	var bufs [][]byte
	var headers [][]byte
	defer func() {
		for _, b := range headers {
			d.headers.put(b)
		}
	}()
	changes := make([]change, 0, len(puts)+len(dels))
	if len(dels) > 0 {
		b := d.headers.get()
		headers, bufs = append(headers, b), append(bufs, b)
		t := tombstone{owner: d.owner, Generation: l.generation, Segment: l.number, Offset: uint64(pos)}
		for _, x := range dels {
			t.Keys = append(t.Keys, x.key)
			changes = append(changes, change{key: x.key, old: &x.old})
		}
		t.encode(b)
		pos += headerSize
	}
	for _, w := range puts {
		b := d.headers.get()
		headers, bufs = append(headers, b), append(bufs, b)
		w.place(b, l, pos)
		bufs = append(bufs, w.pieces...)
		changes = append(changes, change{key: w.key, old: w.old, new: &w.row})
		pos += headerSize + int64(w.spec.Length)
	}
	if err := writeFull(l.active, bufs, begin); err != nil {
		return d.writeFailed("store.commit", err)
	}
	if err := l.active.Fdatasync(); err != nil {
		return d.syncFailed("store.commit", err)
	}
	d.met.syncs.Add(1)
	d.met.writtenBytes.Add(pos - begin)
	if !d.direct {
		l.active.Fadvise(begin, pos-begin, unix.FADV_DONTNEED)
	}
	l.pos = pos
	l.publish()
	holes, err := d.index.apply(changes, &position{l.number, uint64(pos)})
	if err != nil {
		return d.syncFailed("store.commit", err)
	}
	d.rec.punch(holes)
	d.stored(pos - begin)
	for _, w := range puts {
		w.finish(nil)
	}
	for _, x := range dels {
		if x.old.Kind == rowFile {
			d.fds.forget(fdKey{shard: x.key})
			d.filer.unlink(x)
		} else {
			x.finish(nil)
		}
	}
	return nil
}
