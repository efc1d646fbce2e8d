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

type poolWaiter struct {
	size  int64
	ready chan struct{}
}

// Buf is a reference-counted buffer of a Pool. It is born with one reference.
type Buf struct {
	B     []byte // length as asked for; capacity of the class; aligned to Align
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
// Busy when ctx ends first, InvalidArgument when n can never be had.
func (p *Pool) Get(ctx context.Context, n int) (*Buf, error) {
	class := classOf(n)
	if class < 0 || int64(bufClasses[class]) > p.budget {
		return nil, oerr.Errorf("shard.pool", oerr.InvalidArgument, "buffer of %d bytes asked of a pool of %d bytes", n, p.budget)
	}
	size := int64(bufClasses[class])
	p.mu.Lock()
	if len(p.mu.waiters) > 0 || p.mu.out+size > p.budget {
		w := &poolWaiter{size: size, ready: make(chan struct{})}
		p.mu.waiters = append(p.mu.waiters, w)
		p.mu.Unlock()
		select {
		case <-w.ready:
		case <-ctx.Done():
			p.mu.Lock()
			select {
			case <-w.ready: // granted in the same moment: give it back
				p.mu.out -= size
			default:
				for i, x := range p.mu.waiters {
					if x == w {
						p.mu.waiters = append(p.mu.waiters[:i], p.mu.waiters[i+1:]...)
						break
					}
				}
			}
			p.grantLocked()
			p.mu.Unlock()
			return nil, oerr.E("shard.pool", oerr.Busy, ctx.Err())
		}
		p.mu.Lock()
	} else {
		p.mu.out += size
	}
	var b *Buf
	if l := len(p.mu.free[class]); l > 0 {
		b = p.mu.free[class][l-1]
		p.mu.free[class] = p.mu.free[class][:l-1]
		p.mu.cached -= size
	}
	var drop []*Buf
	if b == nil { // keep handed-out + cached within the budget: unmap what other classes hold
		for c := range p.mu.free {
			for p.mu.out+p.mu.cached > p.budget && len(p.mu.free[c]) > 0 {
				l := len(p.mu.free[c])
				drop = append(drop, p.mu.free[c][l-1])
				p.mu.free[c] = p.mu.free[c][:l-1]
				p.mu.cached -= int64(bufClasses[c])
			}
		}
	}
	p.mu.Unlock()
	for _, d := range drop {
		unix.Munmap(d.B[:cap(d.B)])
	}
	if b == nil {
		mem, err := unix.Mmap(-1, 0, bufClasses[class], unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			p.mu.Lock()
			p.mu.out -= size
			p.grantLocked()
			p.mu.Unlock()
			return nil, oerr.Errorf("shard.pool", oerr.Busy, "mmap of %d bytes: %w", bufClasses[class], err)
		}
		b = &Buf{B: mem, pool: p, class: class}
	}
	b.B = b.B[:n]
	b.refs.Store(1)
	return b, nil
}

func (p *Pool) grantLocked() {
	for len(p.mu.waiters) > 0 && p.mu.out+p.mu.waiters[0].size <= p.budget {
		w := p.mu.waiters[0]
		p.mu.waiters = p.mu.waiters[1:]
		p.mu.out += w.size
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
	poison(b.B)
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
		unix.Munmap(b.B[:cap(b.B)])
	}
}

// Close unmaps what is free; buffers still out are unmapped at their last release.
func (p *Pool) Close() {
	p.mu.Lock()
	p.mu.closed = true
	free := p.mu.free
	p.mu.free = [len(bufClasses)][]*Buf{}
	p.mu.cached = 0
	p.mu.Unlock()
	for _, bufs := range free {
		for _, b := range bufs {
			unix.Munmap(b.B[:cap(b.B)])
		}
	}
}
