package host

import (
	"sync"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// inputs is what waits for the loop. Everything is bounded: a full queue refuses.
type inputs struct {
	mu struct {
		sync.Mutex
		closed error
		inputSet
	}
}

// inputSet is swapped out whole, so that the loop works without the lock and the memory is used again.
type inputSet struct {
	batches    [][]byte
	batchBytes int
	proposals  map[ident.Group][]proposal
	propCount  int
	propBytes  int
	reads      []readRequest
	control    []func()
	appended   [][]*appendTask
	applied    [][]*applyTask
}

type readRequest struct {
	group ident.Group
	w     *waiter
}

func (in *inputs) init() { in.mu.proposals = make(map[ident.Group][]proposal) }

func (in *inputs) batch(cfg *Config, b []byte) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.closed != nil || (in.mu.batchBytes > 0 && in.mu.batchBytes+len(b) > cfg.Limits.QueueBytes) {
		return false
	}
	in.mu.batches = append(in.mu.batches, b)
	in.mu.batchBytes += len(b)
	return true
}

func (in *inputs) propose(cfg *Config, g ident.Group, p proposal) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.closed != nil {
		return in.mu.closed
	}
	l := &cfg.Limits
	if in.mu.propCount >= l.QueueProposals || (in.mu.propBytes > 0 && in.mu.propBytes+len(p.data) > l.QueueBytes) {
		return oerr.Errorf("host.propose", oerr.Busy, "%d proposals wait already", in.mu.propCount)
	}
	in.mu.proposals[g] = append(in.mu.proposals[g], p)
	in.mu.propCount++
	in.mu.propBytes += len(p.data)
	return nil
}

func (in *inputs) read(g ident.Group, w *waiter) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.closed != nil {
		return in.mu.closed
	}
	if len(in.mu.reads) >= maxReadWaiters {
		return oerr.Errorf("host.read_index", oerr.Busy, "%d reads wait already", len(in.mu.reads))
	}
	in.mu.reads = append(in.mu.reads, readRequest{g, w})
	return nil
}

func (in *inputs) control(f func()) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.closed != nil {
		return in.mu.closed
	}
	if len(in.mu.control) >= maxControlQueue {
		return oerr.Errorf("host.control", oerr.Busy, "%d calls wait already", len(in.mu.control))
	}
	in.mu.control = append(in.mu.control, f)
	return nil
}

// Completions are never refused: at most one of each kind is under way.
func (in *inputs) appendDone(ts []*appendTask) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.appended = append(in.mu.appended, ts)
}

func (in *inputs) applyDone(ts []*applyTask) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.applied = append(in.mu.applied, ts)
}

// swap takes everything and leaves spare, emptied by reset.
func (in *inputs) swap(spare *inputSet) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.inputSet, *spare = *spare, in.mu.inputSet
}

func (s *inputSet) reset() {
	clear(s.batches)
	clear(s.reads)
	clear(s.control)
	clear(s.appended)
	clear(s.applied)
	s.batches, s.reads, s.control, s.appended, s.applied = s.batches[:0], s.reads[:0], s.control[:0], s.appended[:0], s.applied[:0]
	s.batchBytes, s.propCount, s.propBytes = 0, 0, 0
	for g, ps := range s.proposals {
		if len(ps) == 0 {
			delete(s.proposals, g) // idle since the last round
			continue
		}
		clear(ps)
		s.proposals[g] = ps[:0]
	}
}

// close refuses everything from now on and answers what waits.
func (in *inputs) close(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.closed = err
	for _, ps := range in.mu.proposals {
		for _, p := range ps {
			p.w.done(Applied{}, err)
		}
	}
	for _, r := range in.mu.reads {
		r.w.done(Applied{}, err)
	}
	in.mu.inputSet = inputSet{proposals: make(map[ident.Group][]proposal)}
}

// loop owns the core. It takes whatever has arrived, steps, and hands out the work; while a sync or an apply runs, what
// arrives piles up and forms the next batch.
func (h *Host) loop() {
	defer h.loopEnded()
	ticker := time.NewTicker(h.cfg.TickInterval)
	defer ticker.Stop()
	spare := inputSet{proposals: make(map[ident.Group][]proposal)}
	for {
		tick := false
		select {
		case <-h.ctx.Done():
			return
		case <-ticker.C:
			tick = true
		case <-h.wake:
		}
		h.in.swap(&spare)
		h.round(&spare, tick)
		spare.reset()
	}
}

func (h *Host) round(in *inputSet, tick bool) {
	c := h.core
	c.nowMS = h.cfg.Now()
	if tick {
		c.tick(c.nowMS)
		h.metrics.clockOffset.Store(c.clock.offset)
		if c.logPressure() && !h.press.Swap(true) {
			signal(h.flushed)
		}
	}
	for _, ts := range in.appended {
		h.writing = false
		c.appendDone(ts)
		for _, t := range ts {
			t.r.pending--
		}
	}
	for _, ts := range in.applied {
		h.applying = false
		c.applyDone(ts)
		for _, t := range ts {
			t.r.pending--
		}
	}
	for _, b := range in.batches {
		h.metrics.batchesIn.Add(1)
		h.metrics.bytesIn.Add(uint64(len(b)))
		if err := c.stepBatch(b); err != nil {
			h.metrics.badBatches.Add(1)
		}
	}
	for _, f := range in.control {
		f()
	}
	for g, ps := range in.proposals {
		if len(ps) > 0 {
			c.propose(g, ps)
		}
	}
	for _, r := range in.reads {
		c.readIndex(r.group, r.w)
	}
	h.drain()
	h.checkBarriers()
}

// drain hands out what the core wants, until it wants nothing more at once.
func (h *Host) drain() {
	for {
		out := h.core.ready()
		if out.empty() {
			break
		}
		h.sendAll(out.msgs)
		for _, t := range out.appends {
			t.r.pending++
		}
		for _, t := range out.applies {
			t.r.pending++
		}
		h.pendingAppends = append(h.pendingAppends, out.appends...)
		h.pendingApplies = append(h.pendingApplies, out.applies...)
		for _, o := range out.snapshots {
			h.startSnapshot(o)
		}
		h.dispatch()
	}
	h.dispatch()
}

// dispatch starts the writer and the applier when they are idle. What needs no write is answered without one.
func (h *Host) dispatch() {
	if ts := h.pendingAppends; len(ts) > 0 && !h.writing {
		h.pendingAppends = nil
		if needsWrite(ts) {
			h.writing = true
			h.writeCh <- ts
		} else {
			h.core.appendDone(ts)
			for _, t := range ts {
				t.r.pending--
			}
		}
	}
	if ts := h.pendingApplies; len(ts) > 0 && !h.applying {
		h.pendingApplies = nil
		h.applying = true
		h.applyCh <- ts
	}
}

func needsWrite(ts []*appendTask) bool {
	for _, t := range ts {
		if len(t.entries) > 0 || t.writeHS || t.reset != nil || t.trunc != nil {
			return true
		}
	}
	return false
}

func (h *Host) runWriter() {
	for {
		select {
		case <-h.ctx.Done():
			return
		case ts := <-h.writeCh:
			start := time.Now()
			n, synced, err := h.stores.log.write(ts)
			if err != nil {
				h.fail(err)
				return
			}
			if synced {
				h.metrics.sync(time.Since(start))
			}
			h.metrics.logBytes.Add(uint64(n))
			h.metrics.logBatches.Add(1)
			h.in.appendDone(ts)
			signal(h.wake)
		}
	}
}

func (h *Host) runApplier() {
	for {
		select {
		case <-h.ctx.Done():
			return
		case ts := <-h.applyCh:
			if err := h.applier.run(ts); err != nil {
				h.fail(err)
				return
			}
			h.in.applyDone(ts)
			signal(h.wake)
		}
	}
}

// loopEnded answers everybody who still waits.
func (h *Host) loopEnded() {
	err := oerr.Errorf("host", oerr.Closed, "the host was closed")
	if h.failed.Load() {
		err = oerr.Errorf("host", oerr.Unavailable, "the drive's store failed")
	}
	h.in.close(err)
	for _, r := range h.core.order {
		r.failReads(err)
		r.failWaiters(oerr.E("host", oerr.OutcomeUnknown, err))
		r.shared.isLeader.Store(false)
		for _, t := range r.held {
			t.finishInstall(err)
		}
		if r.staged != nil {
			r.staged.finish(err)
		}
	}
	for _, b := range h.barriers {
		close(b.ch)
	}
}

func (t *appendTask) finishInstall(err error) {
	if t.install != nil {
		t.install.finish(err)
	}
}

// maintain cuts logs after the state store has flushed, and has it flush when a log grows too long before that.
func (h *Host) maintain() {
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.flushed:
		}
		if h.press.Load() {
			if err := h.stores.state.flush(); err != nil {
				h.fail(err)
				return
			}
			h.press.Store(false)
		}
		m := *h.replicas.Load()
		groups := make([]ident.Group, 0, len(m))
		for g := range m {
			groups = append(groups, g)
		}
		durable, err := h.stores.state.durable(groups)
		if err != nil {
			h.fail(err)
			return
		}
		if h.in.control(func() { h.core.truncate(durable) }) == nil {
			signal(h.wake)
		}
	}
}

// barrier waits until no work of a replica is under way.
type barrier struct {
	r  *replica
	ch chan struct{}
}

func (h *Host) checkBarriers() {
	rest := h.barriers[:0]
	for _, b := range h.barriers {
		if b.r.pending == 0 && len(b.r.held) == 0 {
			close(b.ch)
		} else {
			rest = append(rest, b)
		}
	}
	h.barriers = rest
}
