package store

import (
	"context"
	"reflect"
	"sync"
	"time"

	"objstore/internal/oerr"
	"objstore/shard"
)

// Where a writer stands. Order matters: at or after writerTaken it can no longer be canceled.
const (
	writerOpen   = iota // appends may come
	writerQueued        // committed, waits for its turn
	writerTaken         // being made durable
	writerEnded
)

// recordWriter writes a shard below shard.SegmentLimit. It keeps the appended buffers and hands them to the committer.
type recordWriter struct {
	d    *drive
	spec shard.Spec
	key  rowKey
	old  *row // what a repair replaces
	row  row  // as placed by the committer
	done chan struct{}
	at   time.Time

	mu     sync.Mutex // guards what follows
	stop   func() bool
	state  int
	err    error
	have   uint64
	pieces [][]byte
	bufs   []*shard.Buf
}

// checkAppend is the part of Append that both writers share.
func checkAppend(spec *shard.Spec, have uint64, data []byte, crcs []uint32) error {
	n := uint64(len(data))
	if n == 0 || n > spec.Length-have || n%shard.Align != 0 || (n%shard.BlockSize != 0 && have+n != spec.Length) {
		return oerr.Errorf("store.append", oerr.InvalidArgument, "append of %d bytes at %d to a shard of %d", n, have, spec.Length)
	}
	return oerr.Wrap("store.append", shard.CheckBlocks(spec.Blob, spec.Index, have/shard.BlockSize, data, crcs))
}

// hold keeps data for a write after Append returned: it retains buf when data can be written from where it is, else it
// copies (data without a buffer, or not aligned for O_DIRECT).
func (d *drive) hold(ctx context.Context, buf *shard.Buf, data []byte) (*shard.Buf, []byte, error) {
	if buf != nil && (!d.direct || reflect.ValueOf(data).Pointer()%512 == 0) {
		buf.Retain()
		return buf, data, nil
	}
	b, err := d.copies.Get(ctx, len(data))
	if err != nil {
		return nil, nil, oerr.Wrap("store.append", err)
	}
	copy(b.B, data)
	d.met.copiedBytes.Add(int64(len(data)))
	return b, b.B, nil
}

// Append implements shard.Writer.
func (w *recordWriter) Append(ctx context.Context, buf *shard.Buf, data []byte, crcs []uint32) error {
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
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != writerOpen { // canceled meanwhile
		b.Release()
		return oerr.Wrap("store.append", w.err)
	}
	w.pieces, w.bufs = append(w.pieces, held), append(w.bufs, b)
	first := int(have / shard.BlockSize)
	w.row.ncrc = uint8(first + copy(w.row.crcs[first:], crcs))
	w.have += uint64(len(data))
	return nil
}

// Commit implements shard.Writer.
func (w *recordWriter) Commit(ctx context.Context) (shard.Ack, error) {
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
	w.state = writerQueued
	w.row.Kind, w.row.Length, w.row.Digest = rowRecord, w.spec.Length, shard.Digest(w.row.table())
	w.mu.Unlock()
	if err := w.d.commit.push(logOp{put: w}); err != nil {
		w.cancel(err)
		return shard.Ack{}, err
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		// Taken back if it still waits; otherwise the outcome is unknown and the shard may land.
		err := oerr.E("store.commit", oerr.KindOf(ctx.Err()), ctx.Err())
		w.cancel(err)
		return shard.Ack{}, err
	}
	if w.err != nil { // settled before done was closed
		return shard.Ack{}, w.err
	}
	return shard.Ack{Drive: w.spec.Drive, Incarnation: w.spec.Incarnation, Digest: w.row.Digest}, nil
}

// Abort implements shard.Writer.
func (w *recordWriter) Abort(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	w.cancel(oerr.E("store.writer", oerr.Canceled, cause))
}

// cancel implements abortable.
func (w *recordWriter) cancel(err error) {
	w.mu.Lock()
	if w.state >= writerTaken {
		w.mu.Unlock()
		return
	}
	stop := w.endLocked(err)
	w.mu.Unlock()
	w.gone(stop)
}

// begin is the committer's: from here on the record will be written. False when the writer was canceled meanwhile.
func (w *recordWriter) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != writerQueued {
		return false
	}
	w.state = writerTaken
	return true
}

// place settles where the record goes and encodes its header.
func (w *recordWriter) place(b []byte, l *segmentLog, pos int64) {
	w.row.Segment, w.row.Offset = l.number, uint64(pos)
	h := header{owner: w.d.owner, Kind: kindRecord, Spec: w.spec, Generation: l.generation, Segment: l.number,
		Offset: uint64(pos), Digest: w.row.Digest, CRCs: w.row.table()}
	h.encode(b)
}

// finish is the committer's answer.
func (w *recordWriter) finish(err error) {
	w.mu.Lock()
	stop := w.endLocked(err)
	w.mu.Unlock()
	if err == nil {
		w.d.met.shardsWritten.Add(1)
		w.d.met.writeLatency.observe(time.Since(w.at))
	}
	w.gone(stop)
}

func (w *recordWriter) endLocked(err error) (stop func() bool) {
	w.state, w.err = writerEnded, err
	for _, b := range w.bufs {
		b.Release()
	}
	w.bufs, w.pieces = nil, nil
	return w.stop
}

func (w *recordWriter) gone(stop func() bool) {
	if stop != nil {
		stop()
	}
	w.d.claims.release(w.key)
	close(w.done)
}

func (w *recordWriter) about() *shard.Spec { return &w.spec }
