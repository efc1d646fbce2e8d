package metadata

import (
	"objstore/internal/ident"
)

// landed clears the missing bit and the r/ row of shards that are durable now. A landing that does not fit what is
// committed (the blob was replaced, or the drive has other bytes) changes nothing.
func (t *txn) landed() error {
	for i := range t.c.Landings {
		l := &t.c.Landings[i]
		at, err := t.locate(l.Blob, l.Key)
		if err != nil {
			return err
		}
		if at == nil {
			continue
		}
		x := at.part.Blob
		if int(l.Index) >= len(x.Digests) || x.Digests[l.Index] != l.Digest || x.Missing>>l.Index&1 == 0 {
			continue
		}
		rows, err := t.takeRepairs(x, x.Missing)
		if err != nil {
			return err
		}
		x.Missing &^= 1 << l.Index
		for j := range rows {
			rows[j].lost = false // one more good shard: what seemed lost is worth another try
		}
		if err := t.putRepairs(x, x.Missing, &rows); err != nil {
			return err
		}
		if err := t.rewrite(at); err != nil {
			return err
		}
	}
	return nil
}

// reportBad sets the missing bit and makes the r/ row of shards that a check found bad.
func (t *txn) reportBad() error {
	for i := range t.c.Reports {
		r := &t.c.Reports[i]
		at, err := t.locate(r.Blob, r.Key)
		if err != nil {
			return err
		}
		if at == nil || int(r.Index) >= len(at.part.Blob.Digests) {
			continue
		}
		x := at.part.Blob
		rows, err := t.takeRepairs(x, x.Missing)
		if err != nil {
			return err
		}
		slot := &rows[r.Index]
		if !slot.exists {
			*slot = repairSlot{exists: true, state: repairState{Created: t.c.Now}}
		}
		slot.state.Checked = true
		was := x.Missing
		x.Missing |= 1 << r.Index
		if err := t.putRepairs(x, x.Missing, &rows); err != nil {
			return err
		}
		if x.Missing != was {
			if err := t.rewrite(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// locate finds the part that references a blob, nil when none under this key does.
func (t *txn) locate(blob ident.ID, key string) (*place, error) {
	ref, ok, err := t.ref(blob)
	if err != nil || !ok || ref.Key != key {
		return nil, err
	}
	return t.find(blob, ref)
}

// abandon answers which blobs are live and fences the others: a late commit of them is refused for ever. Their shards
// become garbage; where they are is known only when the caller said so.
func (t *txn) abandon() error {
	t.res.Live = make([]bool, len(t.c.Blobs))
	for i, id := range t.c.Blobs {
		live, err := t.has(t.k.byID(tagBlob, id))
		if err != nil {
			return err
		}
		if live {
			t.res.Live[i] = true
			continue
		}
		t.buf = append(t.buf[:0], rowVersion)
		if err := t.rw.Set(t.k.byID(tagAbandoned, id), t.buf); err != nil {
			return err
		}
		garbage, err := t.has(t.k.byID(tagGarbage, id))
		if err != nil {
			return err
		}
		if garbage {
			continue
		}
		x := &Blob{ID: id}
		for j := range t.c.Abandoned {
			if t.c.Abandoned[j].ID == id {
				x = &t.c.Abandoned[j]
			}
		}
		if err := t.addGarbage(x, t.c.Key); err != nil {
			return err
		}
	}
	return nil
}

// repairDone ends repairs. A row is marked lost only while its shard is missing. Superseded and absent need no write:
// the entry that removed a reference removed its r/ rows, and a row whose blob is referenced still is work to do.
func (t *txn) repairDone() error {
	return t.inSpans(len(t.c.Repairs), func(sp *spanState) bool { return sp.Pending > 0 }, func(i int) (bool, error) {
		o := &t.c.Repairs[i]
		ref, ok, err := t.ref(o.Blob)
		if err != nil || !ok || o.State != RepairLost {
			return ok, err
		}
		at, err := t.find(o.Blob, ref)
		if err != nil {
			return false, err
		}
		x := at.part.Blob
		if int(o.Index) >= len(x.Digests) || x.Missing>>o.Index&1 == 0 {
			return true, nil
		}
		rows, err := t.takeRepairs(x, x.Missing)
		if err != nil {
			return false, err
		}
		rows[o.Index].lost = true
		return true, t.putRepairs(x, x.Missing, &rows)
	})
}

// garbageDone drops the g/ rows of blobs that are gone from all their drives, and with the last one a dropped span.
func (t *txn) garbageDone() error {
	return t.inSpans(len(t.c.Blobs), func(sp *spanState) bool { return sp.Garbage > 0 }, func(i int) (bool, error) {
		key := t.k.byID(tagGarbage, t.c.Blobs[i])
		ok, err := t.has(key)
		if err != nil || !ok {
			return false, err
		}
		t.sp.Garbage--
		t.dirty = true
		t.gone = t.sp.Dropped && t.sp.Garbage == 0
		return true, t.rw.Delete(key)
	})
}

// inSpans calls try for each of n items in one wanted span after the other until it says that the item was there. The
// command's bucket, if it has one, narrows the search. Batches come from a scan in span order, so the span that had
// the item before is tried first.
func (t *txn) inSpans(n int, want func(*spanState) bool, try func(i int) (bool, error)) error {
	type state struct {
		sp          *spanState
		dirty, gone bool
	}
	var spans []state
	prefix := []byte{groupSpan}
	if !t.c.Bucket.IsZero() {
		prefix = append(prefix, t.c.Bucket[:]...)
	}
	err := scanSpans(t.r, prefix, func(sp *spanState) bool {
		if want(sp) {
			spans = append(spans, state{sp: sp})
		}
		return true
	})
	if err != nil {
		return err
	}
	last := 0
	for i := range n {
		for j := range spans {
			s := &spans[(last+j)%len(spans)]
			t.enter(s.sp)
			t.dirty, t.gone = s.dirty, s.gone
			found, err := try(i)
			if err != nil {
				return err
			}
			s.dirty, s.gone = t.dirty, t.gone
			if found {
				last = (last + j) % len(spans)
				break
			}
		}
	}
	for i := range spans {
		t.enter(spans[i].sp)
		t.dirty, t.gone = spans[i].dirty, spans[i].gone
		if err := t.flushSpan(); err != nil {
			return err
		}
	}
	t.sp = nil
	return nil
}
