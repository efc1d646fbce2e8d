package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"objstore/internal/oerr"
)

const (
	readBuffer  = 32 << 10 // bytes; more than one TLS record
	maxIdle     = 16       // workers of one connection that wait for the next call
	readRenew   = 30 * time.Second
	maxDeadline = 10 * time.Minute // of a call, whatever the caller asks for
)

// rpcConn serves the calls of one connection: the reader (serveRPC's goroutine), the writer (outbox.run), and workers.
// A worker that has finished takes the next call without being made again: a handler that reads Pebble needs a stack
// of 16 KiB or more, and growing a fresh one costs more than the call's own framing.
type rpcConn struct {
	s        *Server
	peer     Peer
	maxFrame int
	limit    int // workers
	ctx      context.Context
	out      *outbox
	work     chan call
	wg       sync.WaitGroup
	mu       struct {
		sync.Mutex
		workers, idle int
		inFlight      int // bytes of requests
		room          *sync.Cond
	}
}

// call is one request on its way to a worker.
type call struct {
	h   header
	buf *reqBuf
}

// serveRPC serves until the connection ends and returns why.
func (s *Server) serveRPC(c net.Conn, peer Peer) (reason string) {
	ctx, cancel := context.WithCancel(s.ctx)
	r := &rpcConn{s: s, peer: peer, maxFrame: s.cfg.MaxFrame, limit: s.cfg.MaxConcurrent, ctx: ctx,
		out: newOutbox(s.cfg.MaxInFlight), work: make(chan call)}
	r.mu.room = sync.NewCond(&r.mu.Mutex)
	if peer.Role == RoleNone {
		r.maxFrame, r.limit = min(r.maxFrame, joinMaxFrame), 1
	}
	writeErr := make(chan error, 1)
	go func() {
		err := r.out.run(c, "", func(_, n int) { s.bytesOut.Add(uint64(n)) })
		r.out.close(errConnClosed)
		cancel()
		c.Close() // wakes the reader
		writeErr <- err
	}()
	err := r.read(c, peer.Role == RoleNone)
	cancel()
	r.out.close(errConnClosed)
	close(r.work)
	r.wg.Wait()
	werr := <-writeErr
	switch {
	case errors.Is(werr, os.ErrDeadlineExceeded):
		return ReasonSlow
	case errors.Is(err, errGarbage):
		return ReasonGarbage
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ReasonIdle
	}
	return ReasonClosed
}

var errConnClosed = errors.New("the connection was closed")

// read takes frames off the connection until it ends. fixed says that the connection's deadlines are set for good.
func (r *rpcConn) read(c net.Conn, fixed bool) error {
	br := bufio.NewReaderSize(c, readBuffer)
	var renewed time.Time
	renew := func() {
		if now := time.Now(); !fixed && now.Sub(renewed) > min(readRenew, r.s.cfg.IdleTimeout/4) {
			c.SetReadDeadline(now.Add(r.s.cfg.IdleTimeout))
			renewed = now
		}
	}
	renew()
	lead, err := br.Peek(len(preamble))
	if err != nil {
		return err
	}
	if string(lead) != preamble {
		return fmt.Errorf("%w: read preamble %x", errGarbage, lead)
	}
	br.Discard(len(preamble))
	for {
		renew()
		h, err := readHeader(br, r.maxFrame)
		if err != nil {
			return err
		}
		if h.kind != kindRequest && h.kind != kindOneWay {
			return fmt.Errorf("%w: read an answer (kind %d) from a caller", errGarbage, h.kind)
		}
		if !r.reserve(int(h.length)) {
			return errConnClosed
		}
		buf := r.s.pools.get(int(h.length))
		if _, err := io.ReadFull(br, buf.b); err != nil {
			buf.free()
			return err
		}
		if h.kind == kindOneWay {
			r.oneWay(h, buf)
			continue
		}
		r.dispatch(call{h, buf})
	}
}

// reserve accounts n request bytes, waiting while too many are being handled: back-pressure by not reading.
func (r *rpcConn) reserve(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.mu.inFlight > 0 && r.mu.inFlight+n > r.s.cfg.MaxInFlight && r.ctx.Err() == nil {
		r.mu.room.Wait()
	}
	r.mu.inFlight += n
	return r.ctx.Err() == nil
}

func (r *rpcConn) unreserve(n int) {
	r.mu.Lock()
	r.mu.inFlight -= n
	r.mu.room.Signal()
	r.mu.Unlock()
}

func (r *rpcConn) oneWay(h header, buf *reqBuf) {
	_, _, err := r.s.invoke(r.ctx, r.peer, h.method, buf.b)
	_ = err // counted by invoke; nobody waits for it
	buf.free()
	r.unreserve(int(h.length))
}

// dispatch hands the call to an idle worker, or a new one, or refuses it.
func (r *rpcConn) dispatch(k call) {
	select {
	case r.work <- k:
		return
	default:
	}
	r.mu.Lock()
	free := r.mu.workers < r.limit
	if free {
		r.mu.workers++
		r.wg.Add(1)
	}
	r.mu.Unlock()
	if free {
		go r.worker(k)
		return
	}
	r.s.busy.Add(1)
	h := k.h
	k.buf.free()
	r.unreserve(int(h.length))
	r.answer(h, nil, oerr.Errorf("wire.serve", oerr.Busy, "%d calls of this connection are running", r.limit))
}

// worker runs calls until the connection ends or enough others are waiting.
func (r *rpcConn) worker(k call) {
	defer r.wg.Done()
	for {
		r.run(k)
		r.mu.Lock()
		if r.mu.idle >= maxIdle {
			r.mu.workers--
			r.mu.Unlock()
			return
		}
		r.mu.idle++
		r.mu.Unlock()
		var ok bool
		k, ok = <-r.work
		r.mu.Lock()
		r.mu.idle--
		r.mu.Unlock()
		if !ok {
			return
		}
	}
}

func (r *rpcConn) run(k call) {
	ctx, cancel := context.WithTimeout(r.ctx, min(time.Duration(k.h.deadline)*time.Millisecond, maxDeadline))
	reply, aliases, err := r.s.invoke(ctx, r.peer, k.h.method, k.buf.b)
	cancel()
	if aliases && len(reply) > 0 {
		reply = append([]byte(nil), reply...)
	}
	k.buf.free()
	r.unreserve(int(k.h.length))
	if r.ctx.Err() != nil {
		return // the connection ends, and that is the answer: Canceled would say that the caller went away
	}
	r.answer(k.h, reply, err)
}

func (r *rpcConn) answer(h header, reply []byte, err error) {
	out := header{kind: kindReply, method: h.method, id: h.id}
	if err == nil && len(reply) > r.maxFrame {
		err = oerr.Errorf("wire.serve", oerr.Internal, "method %d: reply of %d bytes, at most %d can be sent", h.method, len(reply), r.maxFrame)
	}
	if err != nil {
		out.kind, reply = kindError, AppendError(nil, err)
	}
	r.out.put(out, reply, true, true) // fails only when the connection is gone
}

// invoke runs a method's handler for peer. aliases reports that the reply lies in the request's memory.
func (s *Server) invoke(ctx context.Context, peer Peer, m Method, req []byte) (reply []byte, aliases bool, err error) {
	var h *method
	if m < maxMethod {
		h = s.methods[m].Load()
	}
	switch {
	case h == nil:
		return nil, false, oerr.Errorf("wire.serve", oerr.NotImplemented, "method %d is not known here", m)
	case peer.Role < h.min:
		s.denied.Add(1)
		return nil, false, oerr.Errorf("wire.serve", oerr.PermissionDenied, "method %d needs a member's certificate", m)
	}
	h.n.calls.Add(1)
	h.n.bytes.Add(uint64(len(req)))
	reply, err = h.handler(ctx, peer, req)
	if err != nil {
		h.n.errors.Add(1)
		return nil, false, err
	}
	return reply, overlaps(reply, req), nil
}

// overlaps reports whether a echoes memory of b: they end at the same byte of one array.
func overlaps(a, b []byte) bool {
	return cap(a) > 0 && cap(b) > 0 && &a[:cap(a)][cap(a)-1] == &b[:cap(b)][cap(b)-1]
}

// reqBuf is a pooled request buffer.
type reqBuf struct {
	b    []byte
	pool *sync.Pool // nil: too large to keep
}

// reqClasses are the sizes in bytes of pooled request buffers: a metadata call, one with an inline body, a Raft batch.
var reqClasses = [...]int{2 << 10, 16 << 10, 128 << 10}

// reqPools keeps request buffers between calls; larger ones are left to the collector.
type reqPools [len(reqClasses)]sync.Pool

func (p *reqPools) get(n int) *reqBuf {
	for i, size := range reqClasses {
		if n > size {
			continue
		}
		r, _ := p[i].Get().(*reqBuf)
		if r == nil {
			r = &reqBuf{b: make([]byte, size), pool: &p[i]}
		}
		r.b = r.b[:n]
		return r
	}
	return &reqBuf{b: make([]byte, n)}
}

func (r *reqBuf) free() {
	if r.pool != nil {
		r.pool.Put(r)
	}
}
