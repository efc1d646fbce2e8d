package store

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"objstore/internal/oerr"
	"objstore/shard"
)

// piece is appended data that waits to be written.
type piece struct {
	buf  *shard.Buf
	data []byte
}

// fileWriter writes a shard of at least shard.SegmentLimit to a file of its own. While there is something to do, one
// goroutine (run) writes it in order; appends wait when maxAppends pieces are queued. The last piece is kept until
// Commit, so that cells and footer go out in one write.
type fileWriter struct {
	d    *drive
	spec shard.Spec
	key  rowKey
	old  *row // what a repair replaces
	row  row
	path string // where it is written; a repair is renamed when durable
	done chan struct{}
	room chan struct{} // capacity 1: a piece was taken, or the writer ended
	at   time.Time
	size int64

	mu       sync.Mutex // guards what follows
	stop     func() bool
	state    int
	err      error
	have     uint64
	crcs     []uint32
	queue    []piece
	running  bool
	reserved bool // size is still in space.pending

	// The runner's alone:
	f     File
	made  bool // the file exists, or may
	wrote int64
}

// initLocked completes a new writer; old is the row that it replaces.
func (w *fileWriter) initLocked(old *row) {
	w.old = old
	w.path = shardPath(w.d.cfg.Path, w.key)
	if old != nil {
		w.path += repairSuffix
	}
	w.size = fileSize(w.spec.Length)
	w.done, w.room = make(chan struct{}), make(chan struct{}, 1)
	w.crcs = make([]uint32, 0, shard.Blocks(w.spec.Length))
}

// Append implements shard.Writer.
func (w *fileWriter) Append(ctx context.Context, buf *shard.Buf, data []byte, crcs []uint32) error {
	w.mu.Lock()
	have, err := w.have, w.err
	if err == nil && w.state != writerOpen {
		err = oerr.Errorf("store.append", oerr.InvalidArgument, "append after commit")
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if err := checkAppend(&w.spec, have, data, crcs); err != nil {
		w.cancel(err)
		return err
	}
	b, held, err := w.d.hold(ctx, buf, data)
	if err != nil {
		w.cancel(err)
		return err
	}
	for {
		w.mu.Lock()
		if w.state != writerOpen {
			err := w.err
			w.mu.Unlock()
			b.Release()
			return oerr.Wrap("store.append", err)
		}
		if len(w.queue) < maxAppends {
			break
		}
		w.mu.Unlock()
		select {
		case <-w.room:
		case <-ctx.Done():
			b.Release()
			err := oerr.E("store.append", oerr.KindOf(ctx.Err()), ctx.Err())
			w.cancel(err)
			return err
		}
	}
	defer w.mu.Unlock()
	w.queue = append(w.queue, piece{b, held})
	w.crcs = append(w.crcs, crcs...)
	w.have += uint64(len(data))
	w.kickLocked()
	return nil
}

// takeLocked returns what may be written now: everything but the last piece of an uncommitted shard.
func (w *fileWriter) takeLocked() (pieces []piece) {
	n := len(w.queue)
	if n > 0 && w.state == writerOpen && w.have == w.spec.Length {
		n--
	}
	pieces = append(pieces, w.queue[:n]...)
	w.queue = append(w.queue[:0], w.queue[n:]...)
	return pieces
}

func (w *fileWriter) kickLocked() {
	last := w.have == w.spec.Length && w.state == writerOpen
	if w.running || (w.state == writerOpen && (len(w.queue) == 0 || (last && len(w.queue) == 1))) {
		return
	}
	w.running = true
	w.d.jobs.Add(1)
	go w.run()
}

// run writes until there is nothing to write, seals after a commit, cleans up after a cancel.
func (w *fileWriter) run() {
	defer w.d.jobs.Add(-1)
	slot, err := w.d.writes.acquire(context.Background()) // bounded by the number of writers; the drive's deadline is the fence
	if err != nil {
		w.fail(err)
		w.cleanup()
		return
	}
	for {
		w.mu.Lock()
		pieces, state := w.takeLocked(), w.state
		if state == writerQueued {
			w.state = writerTaken
		}
		if state == writerEnded {
			w.mu.Unlock()
			release(pieces)
			w.cleanup()
			w.d.writes.release(slot)
			return
		}
		if len(pieces) == 0 && state == writerOpen {
			w.running = false
			w.mu.Unlock()
			w.d.writes.release(slot)
			return
		}
		w.mu.Unlock()
		select {
		case w.room <- struct{}{}:
		default:
		}
		err := w.write(pieces, state == writerQueued)
		release(pieces)
		if err != nil {
			w.fail(err)
			w.cleanup()
			w.d.writes.release(slot)
			return
		}
		if state == writerQueued {
			err := w.sync()
			w.d.writes.release(slot)
			if err != nil {
				w.fail(err)
				w.cleanup()
				return
			}
			w.d.filer.seal(w)
			return
		}
		// A slot is for one write: long shards take turns with others.
		w.d.writes.release(slot)
		if slot, err = w.d.writes.acquire(context.Background()); err != nil {
			w.fail(err)
			w.cleanup()
			return
		}
	}
}

func release(pieces []piece) {
	for _, p := range pieces {
		p.buf.Release()
	}
}

// write puts the pieces where they belong, with the header before the first and the footer after the last.
func (w *fileWriter) write(pieces []piece, last bool) error {
	d := w.d
	if cause := d.fenceCause(); cause != nil {
		return oerr.E("store.write", oerr.DriveFenced, cause)
	}
	var bufs [][]byte
	pos := w.wrote
	if w.f == nil {
		if err := w.create(); err != nil {
			return err
		}
		b := d.headers.get()
		defer d.headers.put(b)
		h := header{owner: d.owner, Kind: kindFile, Spec: w.spec}
		h.encode(b)
		bufs = append(bufs, b)
		w.wrote += headerSize
	}
	for _, p := range pieces {
		bufs = append(bufs, p.data)
		w.wrote += int64(len(p.data))
	}
	if last {
		b, err := newAligned(footerSize(w.spec.Length)) // rarely more than a page, one for each large shard
		if err != nil {
			return oerr.E("store.write", oerr.Busy, err)
		}
		defer unix.Munmap(b)
		f := footer{owner: d.owner, Blob: w.spec.Blob, Index: w.spec.Index, Length: w.spec.Length, Digest: w.row.Digest,
			Stripes: stripes(w.spec.Length, w.spec.CellSize), CRCs: w.crcs}
		f.encode(b)
		bufs = append(bufs, b)
		w.wrote += int64(len(b))
	}
	if len(bufs) == 0 {
		return nil
	}
	if err := writeFull(w.f, bufs, pos); err != nil {
		return d.writeFailed("store.write", err)
	}
	d.met.writtenBytes.Add(w.wrote - pos)
	return nil
}

func (w *fileWriter) create() error {
	d := w.d
	flags := d.openFlags(syscall.O_CREAT | syscall.O_EXCL | syscall.O_RDWR)
	f, err := d.fs.Open(w.path, flags)
	if errors.Is(err, syscall.EEXIST) { // no row and no writer: what a failed attempt left
		if err = d.fs.Remove(w.path); err == nil {
			f, err = d.fs.Open(w.path, flags)
		}
	}
	if err != nil {
		return d.writeFailed("store.write", err)
	}
	w.f, w.made = f, true
	// One extent, and no length to update at each append.
	if err := f.Fallocate(0, 0, w.size); err != nil && !isUnsupported(err) {
		return d.writeFailed("store.write", err)
	}
	w.unreserve()
	return nil
}

// sync makes the file durable under its own name; the directory is the filer's.
func (w *fileWriter) sync() error {
	d := w.d
	if err := w.f.Fdatasync(); err != nil {
		return d.syncFailed("store.sync", err)
	}
	d.met.syncs.Add(1)
	if !d.direct {
		w.f.Fadvise(0, 0, unix.FADV_DONTNEED)
	}
	err := w.f.Close()
	w.f = nil
	if err != nil {
		return d.syncFailed("store.sync", err)
	}
	if final := shardPath(d.cfg.Path, w.key); w.path != final {
		if err := d.fs.Rename(w.path, final); err != nil {
			return d.syncFailed("store.sync", err)
		}
		w.path = final
	}
	return nil
}

// Commit implements shard.Writer.
func (w *fileWriter) Commit(ctx context.Context) (shard.Ack, error) {
	w.mu.Lock()
	switch {
	case w.err != nil:
		w.mu.Unlock()
		return shard.Ack{}, w.err
	case w.state != writerOpen:
		w.mu.Unlock()
		return shard.Ack{}, oerr.Errorf("store.commit", oerr.InvalidArgument, "commit after commit")
	case w.have != w.spec.Length:
		err := oerr.Errorf("store.commit", oerr.InvalidArgument, "commit after %d bytes, expected %d", w.have, w.spec.Length)
		w.mu.Unlock()
		w.cancel(err)
		return shard.Ack{}, err
	}
	w.row = row{Kind: rowFile, Length: w.spec.Length, Digest: shard.Digest(w.crcs)}
	w.state = writerQueued
	w.kickLocked()
	w.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
		err := oerr.E("store.commit", oerr.KindOf(ctx.Err()), ctx.Err())
		w.cancel(err)
		return shard.Ack{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return shard.Ack{}, w.err
	}
	return shard.Ack{Drive: w.spec.Drive, Incarnation: w.spec.Incarnation, Digest: w.row.Digest}, nil
}

// Abort implements shard.Writer.
func (w *fileWriter) Abort(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	w.cancel(oerr.E("store.writer", oerr.Canceled, cause))
}

// cancel implements abortable. The runner removes the file; the claim is kept until it has.
func (w *fileWriter) cancel(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state >= writerTaken {
		return
	}
	w.state, w.err = writerEnded, err
	select {
	case w.room <- struct{}{}:
	default:
	}
	w.kickLocked()
}

// fail ends the writer from within the runner.
func (w *fileWriter) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.state = writerEnded
}

// cleanup removes what was written and lets go of everything. It runs once, last.
func (w *fileWriter) cleanup() {
	if w.f != nil {
		w.f.Close()
		w.f = nil
	}
	if w.made && w.d.fenceCause() == nil {
		w.d.fs.Remove(w.path) // what stays is found at the next open: it has no row
		w.d.space.refresh()
	}
	w.finish(nil)
}

// finish is the last step of success (err nil and none before) and of failure.
func (w *fileWriter) finish(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.state = writerEnded
	release(w.queue)
	w.queue = nil
	ok, stop := w.err == nil, w.stop
	w.mu.Unlock()
	w.unreserve()
	if stop != nil {
		stop()
	}
	if ok {
		w.d.met.shardsWritten.Add(1)
		w.d.met.writeLatency.observe(time.Since(w.at))
	}
	w.d.claims.release(w.key)
	close(w.done)
	select {
	case w.room <- struct{}{}:
	default:
	}
}

func (w *fileWriter) unreserve() {
	w.mu.Lock()
	had := w.reserved
	w.reserved = false
	w.mu.Unlock()
	if had {
		w.d.space.allocated(w.size)
	}
}

func (w *fileWriter) about() *shard.Spec { return &w.spec }
