package wire

import (
	"crypto/tls"
	"net"
	"sync"
	"time"

	"objstore/internal/oerr"
)

const (
	copyLimit      = 16 << 10 // payloads up to this are copied behind their header; larger ones are referenced
	keepBuffer     = 64 << 10 // largest queue buffer that is kept between writes, bytes
	writeTimeout   = 10 * time.Second
	deadlineSlack  = time.Second // a deadline this fresh is not set again: setting one costs a timer change
	maxQueuedCount = 16 << 10    // frames
)

// outbox is the sending side of a connection: callers append frames, one goroutine (run) takes everything that is
// there and writes it at once. Under load one system call and one TLS record carry many frames.
type outbox struct {
	limit int // bytes queued at most, but always one frame
	wake  chan struct{}
	mu    struct {
		sync.Mutex
		q      queue
		room   *sync.Cond
		closed error
	}
}

// queue is a run of frames: buf with the bytes of ext inserted at their positions.
type queue struct {
	buf    []byte
	ext    []external
	bytes  int
	frames int
}

type external struct {
	pos int // in buf
	b   []byte
}

func newOutbox(limit int) *outbox {
	o := &outbox{limit: limit, wake: make(chan struct{}, 1)}
	o.mu.room = sync.NewCond(&o.mu.Mutex)
	return o
}

func (o *outbox) fullLocked(n int) bool {
	q := &o.mu.q
	return q.frames > 0 && (q.bytes+headerSize+n > o.limit || q.frames >= maxQueuedCount)
}

// put queues a frame. owned says that payload was handed over; otherwise it is copied before put returns. With wait
// it blocks while the queue is full (the connection's write deadline bounds that), without it answers Busy.
func (o *outbox) put(h header, payload []byte, owned, wait bool) error {
	h.length = uint32(len(payload))
	if !owned && len(payload) > copyLimit {
		payload, owned = append([]byte(nil), payload...), true
	}
	o.mu.Lock()
	for o.mu.closed == nil && o.fullLocked(len(payload)) {
		if !wait {
			o.mu.Unlock()
			return oerr.Errorf("wire.send", oerr.Busy, "%d bytes are queued, at most %d may be", o.limit, o.limit)
		}
		o.mu.room.Wait()
	}
	if err := o.mu.closed; err != nil {
		o.mu.Unlock()
		return err
	}
	q := &o.mu.q
	first := q.frames == 0
	var b [headerSize]byte
	h.put(b[:])
	q.buf = append(q.buf, b[:]...)
	if len(payload) <= copyLimit {
		q.buf = append(q.buf, payload...)
	} else {
		q.ext = append(q.ext, external{len(q.buf), payload})
	}
	q.bytes += headerSize + len(payload)
	q.frames++
	o.mu.Unlock()
	if first {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// close ends run and refuses further frames with err.
func (o *outbox) close(err error) {
	o.mu.Lock()
	if o.mu.closed == nil {
		o.mu.closed = err
		o.mu.q = queue{}
	}
	o.mu.room.Broadcast()
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take swaps the filled queue for the empty one and waits while there is nothing.
func (o *outbox) take(empty queue) (queue, error) {
	for {
		o.mu.Lock()
		if err := o.mu.closed; err != nil {
			o.mu.Unlock()
			return queue{}, err
		}
		if o.mu.q.frames > 0 {
			q := o.mu.q
			o.mu.q = empty
			o.mu.room.Broadcast()
			o.mu.Unlock()
			return q, nil
		}
		o.mu.Unlock()
		<-o.wake
	}
}

// run writes until the outbox is closed or a write fails; sent is told of each batch. lead goes before everything.
func (o *outbox) run(c net.Conn, lead string, sent func(frames, bytes int)) error {
	w := newConnWriter(c)
	empty := queue{}
	for {
		q, err := o.take(empty)
		if err != nil {
			return err
		}
		if lead != "" {
			q.buf = append([]byte(lead), q.buf...)
			for i := range q.ext {
				q.ext[i].pos += len(lead)
			}
			lead = ""
		}
		if err := w.write(q); err != nil {
			return err
		}
		sent(q.frames, q.bytes)
		empty = queue{}
		if cap(q.buf) <= keepBuffer {
			empty.buf = q.buf[:0]
		}
		clear(q.ext)
		empty.ext = q.ext[:0]
	}
}

// connWriter writes queues to a connection, each under a write deadline.
type connWriter struct {
	c       net.Conn
	batch   *BatchConn // nil when c is not TLS over a BatchConn
	renewed time.Time
}

func newConnWriter(c net.Conn) *connWriter {
	w := &connWriter{c: c}
	if t, ok := c.(*tls.Conn); ok {
		w.batch, _ = t.NetConn().(*BatchConn)
	}
	return w
}

func (w *connWriter) write(q queue) error {
	if now := time.Now(); now.Sub(w.renewed) > deadlineSlack {
		if err := w.c.SetWriteDeadline(now.Add(writeTimeout)); err != nil {
			return err
		}
		w.renewed = now
	}
	if len(q.ext) == 0 && len(q.buf) <= copyLimit { // one TLS record
		_, err := w.c.Write(q.buf)
		return err
	}
	if w.batch != nil {
		w.batch.Begin()
	}
	err := w.writeAll(q)
	if w.batch != nil {
		if ferr := w.batch.Flush(); err == nil {
			err = ferr
		}
	}
	return err
}

func (w *connWriter) writeAll(q queue) error {
	pos := 0
	for _, e := range q.ext {
		if _, err := w.c.Write(q.buf[pos:e.pos]); err != nil {
			return err
		}
		if _, err := w.c.Write(e.b); err != nil {
			return err
		}
		pos = e.pos
	}
	if pos == len(q.buf) {
		return nil
	}
	_, err := w.c.Write(q.buf[pos:])
	return err
}
