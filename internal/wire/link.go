package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// link is the client's side of one connection to one peer. It is down, dialling, or up; a failed dial keeps it down
// for a backoff during which calls fail at once.
type link struct {
	c    *Client
	node ident.Node
	mu   struct {
		sync.Mutex
		up       *session
		dialling *dialling
		fails    int
		notUntil time.Time
		why      error // of the last failed dial
		closed   bool
	}
}

// dialling is one attempt that callers wait for.
type dialling struct {
	done  chan struct{}
	s     *session // valid after done
	err   error
	early *outbox // one-way messages sent meanwhile; becomes the session's outbox
}

// session is a connection that is up.
type session struct {
	l    *link
	conn net.Conn
	out  *outbox
	mu   struct {
		sync.Mutex
		next   uint64
		calls  map[uint64]*pending
		read   uint64 // frames, to tell a stalled connection from a slow call
		broken error
		reason string
	}
}

// pending is a call that waits for its answer. done has room for it.
type pending struct {
	done chan struct{}
	body []byte
	err  error
}

func newLink(c *Client, node ident.Node) *link { return &link{c: c, node: node} }

// call sends one request and waits for its answer.
func (l *link) call(ctx context.Context, deadline time.Time, m Method, req []byte) ([]byte, error) {
	const op = "wire.call"
	s, err := l.session(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	left := deadline.Sub(now)
	ms := (left + time.Millisecond - 1) / time.Millisecond
	if ms <= 0 {
		return nil, oerr.E(op, oerr.DeadlineExceeded, context.DeadlineExceeded)
	}
	p, _ := l.c.results.Get().(*pending)
	if p == nil {
		p = &pending{done: make(chan struct{}, 1)}
	}
	id, seen, err := s.register(p)
	if err != nil {
		return nil, err
	}
	h := header{kind: kindRequest, method: m, id: id, deadline: uint32(min(ms, maxDeadline/time.Millisecond))}
	if err := s.out.put(h, req, false, false); err != nil {
		s.forget(id, p)
		return nil, l.unavailable(err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		if s.forget(id, p) {
			s.judge(seen, now)
			err := ctx.Err()
			return nil, oerr.E(op, oerr.KindOf(err), fmt.Errorf("node %d, method %d: %w", l.node, m, err))
		}
	}
	body, err := p.body, p.err
	p.body, p.err = nil, nil
	l.c.results.Put(p)
	return body, err
}

func (l *link) unavailable(err error) error {
	if oerr.Is(err, oerr.Busy) {
		return err
	}
	return oerr.Errorf("wire.call", oerr.Unavailable, "connection to node %d: %w", l.node, err)
}

// send queues a one-way message and returns the reason why not.
func (l *link) send(m Method, msg []byte) (dropped string) {
	l.mu.Lock()
	var out *outbox
	switch s := l.mu.up; {
	case l.mu.closed:
		dropped = ReasonShutdown
	case s != nil:
		out = s.out
	case l.mu.dialling == nil && time.Now().Before(l.mu.notUntil):
		dropped = ReasonBackoff
	default:
		out = l.dialLocked().early
	}
	l.mu.Unlock()
	if dropped != "" {
		return dropped
	}
	if err := out.put(header{kind: kindOneWay, method: m}, msg, true, false); err != nil {
		if oerr.Is(err, oerr.Busy) {
			return ReasonQueueFull
		}
		return ReasonClosed
	}
	return ""
}

// session returns the connection that is up, or waits for a dial.
func (l *link) session(ctx context.Context) (*session, error) {
	l.mu.Lock()
	if s := l.mu.up; s != nil {
		l.mu.Unlock()
		return s, nil
	}
	if l.mu.closed {
		l.mu.Unlock()
		return nil, oerr.Errorf("wire.call", oerr.Closed, "the client was closed")
	}
	if l.mu.dialling == nil && time.Now().Before(l.mu.notUntil) {
		why := l.mu.why
		l.mu.Unlock()
		return nil, oerr.Errorf("wire.call", oerr.Unavailable, "node %d, not tried again yet: %w", l.node, why)
	}
	d := l.dialLocked()
	l.mu.Unlock()
	select {
	case <-d.done:
		return d.s, d.err
	case <-ctx.Done():
		err := ctx.Err()
		return nil, oerr.E("wire.call", oerr.KindOf(err), fmt.Errorf("dialling node %d: %w", l.node, err))
	}
}

// dialLocked joins the attempt in progress or starts one.
func (l *link) dialLocked() *dialling {
	if l.mu.dialling != nil {
		return l.mu.dialling
	}
	d := &dialling{done: make(chan struct{}), early: newOutbox(l.c.cfg.MaxQueued)}
	l.mu.dialling = d
	l.c.wg.Add(1)
	go func() {
		defer l.c.wg.Done()
		conn, reason, err := l.c.dial(l.node)
		l.dialled(d, conn, reason, err)
	}()
	return d
}

// dialled settles an attempt and starts the session's goroutines.
func (l *link) dialled(d *dialling, conn net.Conn, reason string, err error) {
	l.mu.Lock()
	l.mu.dialling = nil
	if err == nil && l.mu.closed {
		err = oerr.Errorf("wire.dial", oerr.Closed, "the client was closed")
		conn.Close()
	}
	if err != nil {
		l.mu.fails++
		backoff := min(minBackoff<<min(l.mu.fails-1, 10), l.c.cfg.MaxBackoff)
		backoff = backoff/2 + rand.N(backoff/2+1) // nodes that lost a peer together do not come back together
		l.mu.notUntil, l.mu.why = time.Now().Add(backoff), err
		d.err = err
		l.mu.Unlock()
		l.c.dialErrors.add(reason)
		d.early.close(err)
		close(d.done)
		return
	}
	s := &session{l: l, conn: conn, out: d.early}
	s.mu.calls = map[uint64]*pending{}
	l.mu.up, l.mu.fails, l.mu.why = s, 0, nil
	d.s = s
	l.c.conns.Add(1)
	l.c.wg.Add(2)
	l.mu.Unlock()
	go s.write()
	go s.read()
	close(d.done)
}

func (l *link) reset() {
	l.mu.Lock()
	l.mu.fails, l.mu.notUntil = 0, time.Time{}
	l.mu.Unlock()
}

func (l *link) close() {
	l.mu.Lock()
	l.mu.closed = true
	s := l.mu.up
	l.mu.Unlock()
	if s != nil {
		s.fail(ReasonShutdown, errConnClosed)
	}
}

func (l *link) closeIdle() {
	l.mu.Lock()
	s := l.mu.up
	l.mu.Unlock()
	if s != nil {
		s.failIdle()
	}
}

// register enters a call; seen is how many frames had been read.
func (s *session) register(p *pending) (id, seen uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.broken != nil {
		return 0, 0, s.l.unavailable(s.mu.broken)
	}
	if len(s.mu.calls) >= s.l.c.cfg.MaxCalls {
		return 0, 0, oerr.Errorf("wire.call", oerr.Busy, "%d calls to node %d are in flight", len(s.mu.calls), s.l.node)
	}
	s.mu.next++
	s.mu.calls[s.mu.next] = p
	return s.mu.next, s.mu.read, nil
}

// forget takes a call back; false when its answer is there (done is, or will be, ready).
func (s *session) forget(id uint64, p *pending) bool {
	s.mu.Lock()
	_, waiting := s.mu.calls[id]
	delete(s.mu.calls, id)
	s.mu.Unlock()
	if !waiting {
		<-p.done
	}
	return waiting
}

// judge ends a connection on which a call has run into its deadline while nothing at all came back for a while: a
// stopped process keeps its connections open, and the next call should find out by dialling.
func (s *session) judge(seen uint64, since time.Time) {
	s.mu.Lock()
	stalled := s.mu.read == seen && time.Since(since) > stallLimit
	s.mu.Unlock()
	if stalled {
		s.fail(ReasonStalled, errors.New("nothing came back"))
	}
}

// fail ends the session once; calls in flight end with Unavailable.
func (s *session) fail(reason string, err error) {
	s.mu.Lock()
	if s.mu.broken != nil {
		s.mu.Unlock()
		return
	}
	s.breakLocked(reason, err)
}

func (s *session) failIdle() {
	s.mu.Lock()
	if s.mu.broken != nil || len(s.mu.calls) > 0 {
		s.mu.Unlock()
		return
	}
	s.breakLocked(ReasonIdle, errConnClosed)
}

// breakLocked is entered with s.mu held and releases it.
func (s *session) breakLocked(reason string, err error) {
	s.mu.broken, s.mu.reason = err, reason
	calls := s.mu.calls
	s.mu.calls = nil
	s.mu.Unlock()

	l := s.l
	l.mu.Lock()
	if l.mu.up == s {
		l.mu.up = nil
	}
	l.mu.Unlock()
	s.out.close(err)
	s.conn.SetDeadline(time.Now()) // wakes a blocked writer before Close waits to send close_notify
	s.conn.Close()
	l.c.conns.Add(-1)
	l.c.ended.add(reason)
	for _, p := range calls {
		p.err = oerr.Errorf("wire.call", oerr.Unavailable, "connection to node %d broke: %w", l.node, err)
		p.done <- struct{}{}
	}
}

func (s *session) write() {
	defer s.l.c.wg.Done()
	err := s.out.run(s.conn, preamble, func(_, n int) { s.l.c.bytesOut.Add(uint64(n)) })
	reason := ReasonClosed
	if errors.Is(err, os.ErrDeadlineExceeded) {
		reason = ReasonSlow
	}
	s.fail(reason, err)
}

func (s *session) read() {
	defer s.l.c.wg.Done()
	br := bufio.NewReaderSize(s.conn, readBuffer)
	var renewed time.Time
	for {
		if now := time.Now(); now.Sub(renewed) > readRenew {
			s.conn.SetReadDeadline(now.Add(clientIdle))
			renewed = now
		}
		h, err := readHeader(br, s.l.c.cfg.MaxFrame)
		if errors.Is(err, os.ErrDeadlineExceeded) && br.Buffered() == 0 {
			s.failIdle()
			if s.failed() {
				return
			}
			continue
		}
		if err == nil {
			err = s.deliver(br, h)
		}
		if err != nil {
			reason := ReasonClosed
			if errors.Is(err, errGarbage) {
				reason = ReasonGarbage
			}
			s.fail(reason, err)
			return
		}
	}
}

func (s *session) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.broken != nil
}

// deliver reads an answer's payload and hands it to its caller. Answers to calls given up are read and dropped.
func (s *session) deliver(br *bufio.Reader, h header) error {
	if h.kind != kindReply && h.kind != kindError {
		return fmt.Errorf("%w: read a request (kind %d) from a server", errGarbage, h.kind)
	}
	s.l.c.bytesIn.Add(uint64(h.length) + headerSize)
	s.mu.Lock()
	s.mu.read++
	p, next := s.mu.calls[h.id], s.mu.next
	s.mu.Unlock()
	if p == nil {
		if h.id > next {
			return fmt.Errorf("%w: read an answer to request %d, %d were sent", errGarbage, h.id, next)
		}
		_, err := br.Discard(int(h.length))
		return err
	}
	body := make([]byte, h.length)
	if _, err := io.ReadFull(br, body); err != nil {
		return err
	}
	s.mu.Lock()
	_, waiting := s.mu.calls[h.id]
	delete(s.mu.calls, h.id)
	s.mu.Unlock()
	if !waiting {
		return nil // given up meanwhile
	}
	if h.kind == kindError {
		p.err = ParseError("wire.call", body)
	} else {
		p.body = body
	}
	p.done <- struct{}{}
	return nil
}
