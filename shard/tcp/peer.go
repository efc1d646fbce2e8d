package tcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// peer is one remote node: its connections, and its endpoint (endpoint.go, writer.go). A slot is the right to have a
// connection open for an operation; idle connections hold none, but never outnumber the slots.
type peer struct {
	c      *Client
	node   ident.Node
	who    string
	slots  chan struct{}
	wallet wallet
	mu     struct {
		sync.Mutex
		idle     []*link // the one used last is at the end
		busy     map[*link]struct{}
		reaper   *time.Timer // runs while there are idle connections
		fails    int
		notUntil time.Time
		why      error
		closed   bool
	}
}

func newPeer(c *Client, node ident.Node) *peer {
	p := &peer{c: c, node: node, who: fmt.Sprintf("node %d", node), slots: make(chan struct{}, c.cfg.MaxConns)}
	p.mu.busy = map[*link]struct{}{}
	return p
}

// checkout returns a connection for one operation. fresh asks for a new one. Every link is given back by exactly one
// of checkin and discard.
func (p *peer) checkout(ctx context.Context, fresh bool) (*link, error) {
	const op = "shard.tcp.dial"
	select {
	case p.slots <- struct{}{}:
	default:
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, oerr.Errorf(op, oerr.KindOf(ctx.Err()), "%s: waiting for one of %d connections: %w", p.who, cap(p.slots), ctx.Err())
		case <-p.c.ctx.Done():
			return nil, oerr.Errorf(op, oerr.Closed, "the client was closed")
		}
	}
	for !fresh {
		l, old := p.popIdle()
		if l == nil {
			break
		}
		if !old || l.alive() {
			l.reused = true
			return l, nil
		}
		p.drop(l)
	}
	l, err := p.dial(ctx)
	if err != nil {
		<-p.slots
		return nil, err
	}
	return l, nil
}

// popIdle takes the most recently used idle connection; old says that it should be looked at.
func (p *peer) popIdle() (l *link, old bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.mu.idle)
	if n == 0 {
		return nil, false
	}
	l = p.mu.idle[n-1]
	p.mu.idle[n-1] = nil
	p.mu.idle = p.mu.idle[:n-1]
	p.mu.busy[l] = struct{}{}
	return l, time.Since(l.idleSince) > probeAfter
}

func (p *peer) dial(ctx context.Context) (*link, error) {
	const op = "shard.tcp.dial"
	p.mu.Lock()
	wait, why, closed := time.Now().Before(p.mu.notUntil), p.mu.why, p.mu.closed
	p.mu.Unlock()
	switch {
	case closed:
		return nil, oerr.Errorf(op, oerr.Closed, "the client was closed")
	case wait:
		return nil, oerr.Errorf(op, oerr.Unavailable, "%s, not tried again yet: %w", p.who, why)
	}
	dctx, cancel := context.WithTimeout(ctx, p.c.cfg.DialTimeout+p.c.cfg.TLSTimeout)
	defer cancel()
	defer context.AfterFunc(p.c.ctx, cancel)()
	l, err := p.c.dial(dctx, p)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if cerr := ended(ctx); cerr != nil { // the caller gave up: that says nothing about the node
			return nil, oerr.Errorf(op, oerr.KindOf(cerr), "%s: %w", p.who, err)
		}
		p.mu.fails++
		backoff := min(minBackoff<<min(p.mu.fails-1, 10), p.c.cfg.MaxBackoff)
		p.mu.notUntil, p.mu.why = time.Now().Add(backoff/2+rand.N(backoff/2+1)), err
		return nil, oerr.Errorf(op, oerr.Unavailable, "%s: %w", p.who, err)
	}
	p.mu.fails = 0
	if p.mu.closed {
		l.close()
		return nil, oerr.Errorf(op, oerr.Closed, "the client was closed")
	}
	p.mu.busy[l] = struct{}{}
	p.c.n.conns.Add(1)
	return l, nil
}

// checkin gives back a connection on which nothing is under way.
func (p *peer) checkin(l *link) {
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		p.discard(l)
		return
	}
	delete(p.mu.busy, l)
	l.idleSince = time.Now()
	p.mu.idle = append(p.mu.idle, l)
	if p.mu.reaper == nil {
		p.mu.reaper = time.AfterFunc(p.c.cfg.IdleTimeout, p.reap)
	}
	p.mu.Unlock()
	<-p.slots
}

// discard closes a connection whose state is not known to be clean.
func (p *peer) discard(l *link) {
	p.drop(l)
	<-p.slots
}

func (p *peer) drop(l *link) {
	p.mu.Lock()
	delete(p.mu.busy, l)
	p.mu.Unlock()
	p.c.n.conns.Add(-1)
	l.close()
}

// purge closes the idle connections: one of their kind just turned out to be dead.
func (p *peer) purge() {
	p.mu.Lock()
	idle := p.mu.idle
	p.mu.idle = nil
	p.mu.Unlock()
	for _, l := range idle {
		p.c.n.conns.Add(-1)
		l.close()
	}
}

// reap closes connections that have been idle for IdleTimeout.
func (p *peer) reap() {
	p.mu.Lock()
	p.mu.reaper = nil
	limit := time.Now().Add(-p.c.cfg.IdleTimeout)
	n := 0
	for n < len(p.mu.idle) && !p.mu.idle[n].idleSince.After(limit) {
		n++
	}
	old := p.mu.idle[:n:n]
	p.mu.idle = append([]*link(nil), p.mu.idle[n:]...)
	if len(p.mu.idle) > 0 && !p.mu.closed {
		p.mu.reaper = time.AfterFunc(p.c.cfg.IdleTimeout/2, p.reap)
	}
	p.mu.Unlock()
	for _, l := range old {
		p.c.n.conns.Add(-1)
		l.close()
	}
}

func (p *peer) close() {
	p.mu.Lock()
	p.mu.closed = true
	if p.mu.reaper != nil {
		p.mu.reaper.Stop()
	}
	for l := range p.mu.busy {
		l.close() // its user sees the error and discards it
	}
	p.mu.Unlock()
	p.purge()
}

// do runs one exchange that may be repeated. f's error is the far side's answer when it carries remote, otherwise the
// connection failed; on one that had been idle this is tried once more on a fresh one.
func (p *peer) do(ctx context.Context, op string, f func(l *link) error) error {
	for try := 0; ; try++ {
		l, err := p.checkout(ctx, try > 0)
		if err != nil {
			return err
		}
		stop := l.begin(ctx, p.c.cfg.OpTimeout)
		err = f(l)
		uncut := stop()
		var far *farError
		if err == nil || errors.As(err, &far) {
			if uncut {
				p.checkin(l)
			} else {
				p.discard(l)
			}
			if far != nil {
				return far.err
			}
			return nil
		}
		again := l.reused || l.proof != nil // had been idle, or our ticket was not known: the server restarted
		p.broke(l, err)
		if try > 0 || !again || ctx.Err() != nil || errors.Is(err, errFrame) {
			return connError(ctx, op, p.who, err)
		}
		p.c.n.retries.Add(1)
	}
}

// broke discards a connection that failed, and the idle ones, which are likely to be dead, too.
func (p *peer) broke(l *link, err error) {
	p.c.n.broken.Add(1)
	if errors.Is(err, errFrame) {
		p.c.n.garbage.Add(1)
	}
	p.discard(l)
	p.purge()
	p.wallet.clear() // a restarted server knows none of them
}

// farError marks an error that the far side answered with.
type farError struct{ err error }

func (e *farError) Error() string { return e.err.Error() }
