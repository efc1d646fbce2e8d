package store

import (
	"sync/atomic"
	"time"
)

// gate lets the reclaimer wait until every read that began before a moment has ended, at the price of two atomic
// additions for a read. A read that found a row may use the bytes it names until it leaves.
type gate struct {
	epoch atomic.Uint32
	in    [2]atomic.Int64
}

func (g *gate) enter() uint32 {
	for {
		e := g.epoch.Load()
		g.in[e&1].Add(1)
		if g.epoch.Load() == e {
			return e
		}
		g.in[e&1].Add(-1)
	}
}

func (g *gate) leave(e uint32) { g.in[e&1].Add(-1) }

// drain returns true when all reads that entered before the call have left, false when some have not within the time.
// Only one goroutine may call it.
func (g *gate) drain(within time.Duration) bool {
	deadline := time.Now().Add(within)
	e := g.epoch.Load()
	if !g.empty((e+1)&1, deadline) { // left over from a drain that gave up
		return false
	}
	g.epoch.Store(e + 1)
	return g.empty(e&1, deadline)
}

func (g *gate) empty(side uint32, deadline time.Time) bool {
	for wait := 50 * time.Microsecond; g.in[side].Load() != 0; wait = min(2*wait, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(wait)
	}
	return true
}
