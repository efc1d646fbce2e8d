package cluster

import (
	"objstore/internal/ident"
)

// dedupRow is one remembered request. Seq numbers the rows without a gap, so that trimming is by number.
type dedupRow struct {
	Request ident.ID      `json:"request"`
	Result  CommandResult `json:"result"`
}

// dedupWindow remembers the results of the last DedupWindow requests.
type dedupWindow struct {
	first, next uint64 // rows [first, next)
	rows        map[uint64]dedupRow
	byID        map[ident.ID]uint64
}

func newDedupWindow() dedupWindow {
	return dedupWindow{rows: map[uint64]dedupRow{}, byID: map[ident.ID]uint64{}}
}

func (w *dedupWindow) get(id ident.ID) (CommandResult, bool) {
	seq, ok := w.byID[id]
	return w.rows[seq].Result, ok
}

// oldest returns the index of the oldest remembered request once older ones were forgotten, else 0.
func (w *dedupWindow) oldest() uint64 {
	if w.first == 0 {
		return 0
	}
	return w.rows[w.first].Result.Index
}

func (w *dedupWindow) add(seq uint64, r dedupRow) {
	if len(w.rows) == 0 {
		w.first = seq
	}
	w.rows[seq] = r
	w.byID[r.Request] = seq
	w.next = seq + 1
}

// trim forgets the oldest row if the window is over its size.
func (w *dedupWindow) trim() (seq uint64, ok bool) {
	if len(w.rows) <= DedupWindow {
		return 0, false
	}
	seq = w.first
	delete(w.byID, w.rows[seq].Request)
	delete(w.rows, seq)
	w.first++
	return seq, true
}

// remember adds a result to the dedup window and its rows.
func (s *State) remember(id ident.ID, res CommandResult) {
	seq, r := s.dedup.next, dedupRow{Request: id, Result: res}
	s.dedup.add(seq, r)
	s.put(seqKey(rowDedup, seq), r)
	if old, ok := s.dedup.trim(); ok {
		s.del(seqKey(rowDedup, old))
	}
}

// retiredWindow remembers the ids of the last RetiredBuckets removed buckets: a bucket id is never used twice, and a
// repeated removal is answered as the first was.
type retiredWindow struct {
	first, next uint64
	rows        map[uint64]ident.ID
	byID        map[ident.ID]uint64
}

func newRetiredWindow() retiredWindow {
	return retiredWindow{rows: map[uint64]ident.ID{}, byID: map[ident.ID]uint64{}}
}

func (w *retiredWindow) has(id ident.ID) bool {
	_, ok := w.byID[id]
	return ok
}

func (w *retiredWindow) add(seq uint64, id ident.ID) {
	if len(w.rows) == 0 {
		w.first = seq
	}
	w.rows[seq] = id
	w.byID[id] = seq
	w.next = seq + 1
}

// retire adds a removed bucket's id.
func (s *State) retire(id ident.ID) {
	w := &s.retired
	s.put(seqKey(rowRetired, w.next), id)
	w.add(w.next, id)
	if len(w.rows) > RetiredBuckets {
		s.del(seqKey(rowRetired, w.first))
		delete(w.byID, w.rows[w.first])
		delete(w.rows, w.first)
		w.first++
	}
}
