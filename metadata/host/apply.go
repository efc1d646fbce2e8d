package host

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	pb "go.etcd.io/raft/v3/raftpb"

	"objstore/internal/oerr"
)

// applyTask is committed entries of one group, or a snapshot to install instead of them.
type applyTask struct {
	r       *replica
	entries []*pb.Entry
	resp    []*pb.Message
	install *stagedSnapshot

	// The applier fills in:
	applied  entryID
	confs    []confApplied
	verifies []hashAt
	err      error // the replica is to be stopped
}

// confApplied is a membership change that was applied.
type confApplied struct {
	cc      *pb.ConfChange
	ctx     confContext
	index   uint64
	members []Member // after it
}

// applyState is how far the applier is, ahead of what the core knows.
type applyState struct {
	meta   appliedMeta
	failed error
}

// applier applies committed entries. One goroutine runs it, so that each group's entries stay in order.
type applier struct {
	state   *stateStore
	metrics *metrics
	// hash takes the rows as of a hash check; it closes the iterator.
	hash func(r *replica, index uint64, it *pebble.Iterator)
}

// unit is a run of entries that is committed in one batch.
type unit struct {
	t       *applyTask
	entries []*pb.Entry
}

// run applies all tasks. An error means the state store is broken; a replica that failed alone has it in its task.
func (a *applier) run(tasks []*applyTask) error {
	var units []unit
	size := 0
	flush := func() error {
		err := a.commit(units)
		units, size = units[:0], 0
		return err
	}
	for _, t := range tasks {
		if t.install != nil {
			if err := flush(); err != nil {
				return err
			}
			a.install(t)
			continue
		}
		lo := 0
		for i, e := range t.entries {
			size += len(e.Data) + entryOverhead
			check := len(e.Data) > 0 && e.GetType() == pb.EntryNormal && e.Data[0] == entryHashCheck
			if size < maxApplyBatchBytes && !check {
				continue
			}
			units = append(units, unit{t, t.entries[lo : i+1]})
			lo = i + 1
			if err := flush(); err != nil {
				return err
			}
			if check && t.r.ap.failed == nil {
				if err := a.hashCheck(t.r, e.GetIndex()); err != nil {
					return err
				}
			}
		}
		if lo < len(t.entries) {
			units = append(units, unit{t, t.entries[lo:]})
		}
	}
	if err := flush(); err != nil {
		return err
	}
	for _, t := range tasks {
		t.applied = t.r.ap.meta.entryID
		if t.err == nil {
			t.err = t.r.ap.failed
		}
	}
	return nil
}

func (a *applier) hashCheck(r *replica, index uint64) error {
	it, err := a.state.rows(r.group, false)
	if err == nil {
		a.hash(r, index, it)
	}
	return err
}

func (a *applier) install(t *applyTask) {
	r := t.r
	r.shared.view.Lock()
	err := t.install.ingest(a.state)
	if err == nil {
		r.ap.meta = t.install.meta
		r.shared.applied.Store(r.ap.meta.index)
	}
	r.shared.view.Unlock()
	if err != nil {
		r.ap.failed = err
		return
	}
	r.sm.Applied(r.group, r.ap.meta.index) // it may read the new state through View
}

// commit applies the units in one batch. A replica whose state machine fails is left out and the rest done again: the
// failed entry's writes must not be seen, and apply is a pure function.
func (a *applier) commit(units []unit) error {
	for len(units) > 0 {
		b := &applyBatch{b: a.state.db.NewIndexedBatch()}
		failed, err := b.add(units)
		if failed == nil && err == nil {
			err = b.commit()
		}
		if failed == nil && err == nil {
			a.finish(b)
		}
		if cerr := b.b.Close(); err == nil && cerr != nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("state store: apply: %w", err)
		}
		if failed == nil {
			return nil
		}
		rest := units[:0:0]
		for _, u := range units {
			if u.t.r != failed {
				rest = append(rest, u)
			}
		}
		units = rest
	}
	return nil
}

// applyBatch is one state batch and what becomes true when it is committed.
type applyBatch struct {
	b       *pebble.Batch
	parts   []applyPart
	results []applyResult
}

type applyPart struct {
	t        *applyTask
	meta     appliedMeta
	confs    []confApplied
	verifies []hashAt
	entries  int
}

type applyResult struct {
	r     *replica
	nonce uint64
	a     Applied
}

// add applies the units' entries to the batch.
func (b *applyBatch) add(units []unit) (failed *replica, err error) {
	for _, u := range units {
		r := u.t.r
		if r.ap.failed != nil {
			continue
		}
		p := applyPart{t: u.t, meta: r.ap.meta}
		if n := len(b.parts); n > 0 && b.parts[n-1].t.r == r {
			p.meta = b.parts[n-1].meta
		} else {
			for _, q := range b.parts { // another task of the same group earlier in this batch
				if q.t.r == r {
					p.meta = q.meta
				}
			}
		}
		if r.ap.failed = b.addPart(&p, u.entries); r.ap.failed != nil {
			return r, nil
		}
		b.parts = append(b.parts, p)
		if err := b.b.Set(prefix(r.group, stateMeta), p.meta.encode(), nil); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (b *applyBatch) addPart(p *applyPart, entries []*pb.Entry) (err error) {
	r := p.t.r
	w := &writer{reader: newReader(b.b, r.group), b: b.b}
	defer func() {
		if x := recover(); x != nil {
			err = oerr.Errorf("host.apply", oerr.Internal, "group %d: apply panicked: %v", r.group, x)
		}
		if e := w.release(); err == nil {
			err = e
		}
	}()
	for _, e := range entries {
		if e.GetIndex() != p.meta.index+1 {
			if e.GetIndex() <= p.meta.index {
				continue // applied already, before a restart that did not know the commit index
			}
			return oerr.Errorf("host.apply", oerr.Corrupt, "group %d: read entry %d, expected %d", r.group, e.GetIndex(), p.meta.index+1)
		}
		if err := b.entry(p, w, e); err != nil {
			return fmt.Errorf("group %d: apply entry %d: %w", r.group, e.GetIndex(), err)
		}
		p.meta.entryID = entryID{e.GetIndex(), e.GetTerm()}
		p.entries++
	}
	return nil
}

func (b *applyBatch) entry(p *applyPart, w *writer, e *pb.Entry) error {
	r := p.t.r
	if e.GetType() == pb.EntryConfChange {
		cc, ctx, err := parseConfChange(e.Data)
		if err != nil {
			return err
		}
		p.meta.members = changeMembers(p.meta.members, cc, ctx.node)
		p.confs = append(p.confs, confApplied{cc, ctx, e.GetIndex(), p.meta.members})
		b.results = append(b.results, applyResult{r, ctx.nonce, Applied{Index: e.GetIndex()}})
		return nil
	}
	pe, err := parseEntry(e.Data)
	if err != nil {
		return err
	}
	switch pe.kind {
	case entryCommand:
		res, err := r.sm.Apply(w, r.group, e.GetIndex(), pe.data)
		if err != nil {
			return err
		}
		b.results = append(b.results, applyResult{r, pe.nonce, Applied{Index: e.GetIndex(), Data: res}})
	case entryHashVerify:
		p.verifies = append(p.verifies, hashAt{pe.index, pe.hash})
	}
	return nil
}

// commit makes the batch visible. It is not synced: the log has it all.
func (b *applyBatch) commit() error {
	if len(b.parts) == 0 {
		return nil
	}
	return b.b.Commit(pebble.NoSync)
}

// finish tells everybody who waits for the batch.
func (a *applier) finish(b *applyBatch) {
	for i := range b.parts {
		p := &b.parts[i]
		r := p.t.r
		r.ap.meta = p.meta
		p.t.confs = append(p.t.confs, p.confs...)
		p.t.verifies = append(p.t.verifies, p.verifies...)
		r.shared.applied.Store(p.meta.index)
		a.metrics.applied.Add(uint64(p.entries))
	}
	for i := range b.results {
		res := &b.results[i]
		if w := res.r.takeWaiter(res.nonce); w != nil {
			w.done(res.a, nil)
		}
	}
	for i := range b.parts {
		r := b.parts[i].t.r
		r.sm.Applied(r.group, r.ap.meta.index)
	}
}
