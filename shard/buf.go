package shard

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"objstore/internal/oerr"
)

// bufClasses are the capacities, in bytes, that a Pool hands out.
var bufClasses = [...]int{16 << 10, 80 << 10, 288 << 10, 544 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20}

// Pool hands out buffers outside the Go heap, aligned for O_DIRECT and registrable with a NIC. Its memory is bounded:
// the bytes handed out never exceed the budget, Get waits for a release until its context ends. Waiters are served in
// order of arrival. Nothing that holds a buffer of one pool may wait for another of the same pool (deadlock): take all
// of an operation's buffers in one Get, or use separate pools for separate roles.
type Pool struct {
	budget int64
	mu     struct {
		sync.Mutex
		free    [len(bufClasses)][]*Buf
		cached  int64 // bytes in free
		out     int64 // bytes handed out
		waiters []*poolWaiter
		closed  bool
	}
}

// poolWaiter is a Get that waits. The fields below ready are set before ready is closed.
type poolWaiter struct {
	class  int
	ready  chan struct{} // closed when granted, or when the pool is closed
	closed bool
	grant
}

// grant is a share of the budget, and what to do with it: use buf, or unmap drop and map a new buffer.
type grant struct {
	buf  *Buf
	drop []*Buf
}

// Buf is a reference-counted buffer of a Pool. It is born with one reference.
type Buf struct {
	B     []byte // length as asked for; capacity of the class; aligned to Align
	mem   []byte // the whole mapping, whatever the user makes of B
	pool  *Pool
	class int
	refs  atomic.Int32
}

// NewPool returns a pool that never has more than budget bytes handed out.
func NewPool(budget int64) *Pool { return &Pool{budget: budget} }

// Budget returns the pool's limit in bytes.
func (p *Pool) Budget() int64 { return p.budget }

// InUse returns the bytes handed out now.
func (p *Pool) InUse() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.out
}

func classOf(n int) int {
	for i, c := range bufClasses {
		if n <= c {
			return i
		}
	}
	return -1
}

// Get returns a buffer with len(B) == n and undefined contents. It waits while the budget is used up; the error is
// Busy when ctx ends first, InvalidArgument when n can never be had, Closed after Close.
func (p *Pool) Get(ctx context.Context, n int) (*Buf, error) {
	class := classOf(n)
	if class < 0 || int64(bufClasses[class]) > p.budget {
		return nil, oerr.Errorf("shard.pool", oerr.InvalidArgument, "buffer of %d bytes asked of a pool of %d bytes", n, p.budget)
	}
	g, err := p.reserve(ctx, class)
	if err != nil {
		return nil, err
	}
	unmap(g.drop)
	b := g.buf
	if b == nil {
		mem, err := unix.Mmap(-1, 0, bufClasses[class], unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			p.mu.Lock()
			p.mu.out -= int64(bufClasses[class])
			p.grantLocked()
			p.mu.Unlock()
			return nil, oerr.Errorf("shard.pool", oerr.Busy, "mmap of %d bytes: %w", bufClasses[class], err)
		}
		b = &Buf{mem: mem, pool: p, class: class}
	}
	b.B = b.mem[:n]
	b.refs.Store(1)
	return b, nil
}

// reserve takes a buffer of this class out of the budget, waiting its turn.
func (p *Pool) reserve(ctx context.Context, class int) (grant, error) {
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		return grant{}, errPoolClosed()
	}
	if len(p.mu.waiters) == 0 && p.fitsLocked(class) {
		g := p.takeLocked(class)
		p.mu.Unlock()
		return g, nil
	}
	w := &poolWaiter{class: class, ready: make(chan struct{})}
	p.mu.waiters = append(p.mu.waiters, w)
	p.mu.Unlock()
	select {
	case <-w.ready:
		if w.closed {
			return grant{}, errPoolClosed()
		}
		return w.grant, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	select {
	case <-w.ready: // in the same moment: give back what was granted
		if !w.closed {
			p.mu.out -= int64(bufClasses[class])
			if w.buf != nil && p.mu.closed {
				w.drop = append(w.drop, w.buf)
			} else if w.buf != nil {
				p.mu.free[class] = append(p.mu.free[class], w.buf)
				p.mu.cached += int64(bufClasses[class])
			}
		}
	default:
		for i, x := range p.mu.waiters {
			if x == w {
				p.mu.waiters = append(p.mu.waiters[:i], p.mu.waiters[i+1:]...)
				break
			}
		}
	}
	p.grantLocked() // who stood behind may fit now
	p.mu.Unlock()
	unmap(w.drop)
	return grant{}, oerr.E("shard.pool", oerr.Busy, ctx.Err())
}

func errPoolClosed() error { return oerr.Errorf("shard.pool", oerr.Closed, "the pool was closed") }

func (p *Pool) fitsLocked(class int) bool { return p.mu.out+int64(bufClasses[class]) <= p.budget }

// takeLocked counts a buffer of the class as handed out: a cached one if there is one; otherwise it takes out of the
// cache what would bring handed out and cached together above the budget.
func (p *Pool) takeLocked(class int) grant {
	p.mu.out += int64(bufClasses[class])
	if len(p.mu.free[class]) > 0 {
		return grant{buf: p.popLocked(class)}
	}
	var g grant
	for c := range p.mu.free {
		for p.mu.out+p.mu.cached > p.budget && len(p.mu.free[c]) > 0 {
			g.drop = append(g.drop, p.popLocked(c))
		}
	}
	return g
}

func (p *Pool) popLocked(class int) *Buf {
	l := len(p.mu.free[class])
	b := p.mu.free[class][l-1]
	p.mu.free[class][l-1] = nil
	p.mu.free[class] = p.mu.free[class][:l-1]
	p.mu.cached -= int64(bufClasses[class])
	return b
}

func unmap(bufs []*Buf) {
	for _, b := range bufs {
		unix.Munmap(b.mem)
	}
}

// grantLocked serves waiters in order while they fit.
func (p *Pool) grantLocked() {
	for len(p.mu.waiters) > 0 && p.fitsLocked(p.mu.waiters[0].class) {
		w := p.mu.waiters[0]
		p.mu.waiters[0] = nil
		p.mu.waiters = p.mu.waiters[1:]
		w.grant = p.takeLocked(w.class)
		close(w.ready)
	}
}

// Retain adds a reference.
func (b *Buf) Retain() {
	if b.refs.Add(1) <= 1 {
		panic("shard.Buf: retained after its last release")
	}
}

// Release drops a reference; the last one returns the buffer to its pool. It must not be touched afterwards.
func (b *Buf) Release() {
	switch n := b.refs.Add(-1); {
	case n < 0:
		panic("shard.Buf: released more often than retained")
	case n > 0:
		return
	}
	p, size := b.pool, int64(bufClasses[b.class])
	poison(b.mem)
	p.mu.Lock()
	closed := p.mu.closed
	p.mu.out -= size
	if !closed {
		p.mu.free[b.class] = append(p.mu.free[b.class], b)
		p.mu.cached += size
	}
	p.grantLocked()
	p.mu.Unlock()
	if closed {
		unix.Munmap(b.mem)
	}
}

// Close unmaps what is free; buffers still out are unmapped at their last release. Waiting Gets end with Closed.
func (p *Pool) Close() {
	p.mu.Lock()
	p.mu.closed = true
	free := p.mu.free
	p.mu.free = [len(bufClasses)][]*Buf{}
	p.mu.cached = 0
	for _, w := range p.mu.waiters {
		w.closed = true
		close(w.ready)
	}
	p.mu.waiters = nil
	p.mu.Unlock()
	for _, bufs := range free {
		unmap(bufs)
	}
}
