package host

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// logStore is the synced Pebble that holds the logs of all groups of a drive.
type logStore struct {
	db      *pebble.DB
	cacheSz int64 // bytes of entries in all groups' caches
	cacheLm int64
	keyBuf  []byte
	valBuf  []byte
}

// groupLog is one group's log. It is raft's Storage. The loop owns it, but for wlast, which the writer owns.
type groupLog struct {
	s     *logStore
	group ident.Group
	trunc entryID // the entry before the first one kept
	last  entryID // the last entry written
	hs    hardState
	conf  *pb.ConfState // as of the start
	// applied tells Snapshot what a snapshot made now would hold at least.
	applied func() (entryID, []Member)

	cache      []*pb.Entry // a suffix of the log: cache[i] has index cacheFirst+i
	cacheFirst uint64
	bytes      uint64 // of data in (trunc, last], for truncation

	wlast uint64 // writer: the last index on the store, with batches under way
}

var _ raft.Storage = (*groupLog)(nil)

// load reads what the store has of the group.
func (s *logStore) load(g ident.Group) (*groupLog, error) {
	l := &groupLog{s: s, group: g}
	if b, err := s.get(prefix(g, logHard)); err != nil {
		return nil, err
	} else if b != nil {
		if l.hs, err = decodeHardState(b); err != nil {
			return nil, err
		}
	}
	if b, err := s.get(prefix(g, logTrunc)); err != nil {
		return nil, err
	} else if b != nil {
		if l.trunc, err = decodeEntryID(b); err != nil {
			return nil, err
		}
	}
	l.last = l.trunc
	err := s.scan(g, l.trunc.index+1, 0, func(e *pb.Entry) (bool, error) {
		if e.GetIndex() != l.last.index+1 {
			return false, oerr.Errorf("host.load", oerr.Corrupt, "log of group %d: read entry %d, expected %d", g, e.GetIndex(), l.last.index+1)
		}
		if e.GetTerm() < l.last.term {
			return false, oerr.Errorf("host.load", oerr.Corrupt, "log of group %d: read term %d at entry %d, expected at least %d", g, e.GetTerm(), e.GetIndex(), l.last.term)
		}
		l.last = entryID{e.GetIndex(), e.GetTerm()}
		l.bytes += uint64(len(e.Data)) + entryOverhead
		return true, nil
	})
	l.wlast = l.last.index
	l.cacheFirst = l.last.index + 1
	return l, err
}

func (s *logStore) get(key []byte) ([]byte, error) {
	v, c, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("log store: %w", err)
	}
	out := slices.Clone(v)
	return out, c.Close()
}

// scan calls f for the entries from lo on, below hi unless hi is 0, until f says no.
func (s *logStore) scan(g ident.Group, lo, hi uint64, f func(*pb.Entry) (bool, error)) (err error) {
	opts := &pebble.IterOptions{LowerBound: entryKey(nil, g, lo), UpperBound: groupEnd(g)}
	if hi != 0 {
		opts.UpperBound = entryKey(nil, g, hi)
	}
	it, err := s.db.NewIter(opts)
	if err != nil {
		return fmt.Errorf("log store: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		k := it.Key()
		if len(k) != prefixLen+8 {
			return corrupt("log key", k, "group, kind and index")
		}
		index := uint64(0)
		for _, c := range k[prefixLen:] {
			index = index<<8 | uint64(c)
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("log store: %w", err)
		}
		e, err := decodeEntryValue(index, v)
		if err != nil {
			return err
		}
		if more, err := f(e); err != nil || !more {
			return err
		}
	}
	return nil
}

// InitialState implements raft.Storage.
func (l *groupLog) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return &pb.HardState{Term: new(l.hs.term), Vote: new(l.hs.vote), Commit: new(l.hs.commit)}, l.conf, nil
}

// FirstIndex implements raft.Storage.
func (l *groupLog) FirstIndex() (uint64, error) { return l.trunc.index + 1, nil }

// LastIndex implements raft.Storage.
func (l *groupLog) LastIndex() (uint64, error) { return l.last.index, nil }

// Term implements raft.Storage.
func (l *groupLog) Term(i uint64) (uint64, error) {
	switch {
	case i < l.trunc.index:
		return 0, raft.ErrCompacted
	case i == l.trunc.index:
		return l.trunc.term, nil
	case i == l.last.index:
		return l.last.term, nil
	case i > l.last.index:
		return 0, raft.ErrUnavailable
	case i >= l.cacheFirst:
		return l.cache[i-l.cacheFirst].GetTerm(), nil
	}
	es, err := l.Entries(i, i+1, 1)
	if err != nil {
		return 0, err
	}
	return es[0].GetTerm(), nil
}

// Entries implements raft.Storage.
func (l *groupLog) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	if lo <= l.trunc.index {
		return nil, raft.ErrCompacted
	}
	if hi > l.last.index+1 {
		return nil, raft.ErrUnavailable
	}
	var out []*pb.Entry
	size := uint64(0)
	add := func(e *pb.Entry) bool {
		size += uint64(len(e.Data)) + 24 // at least what the protobuf takes
		if len(out) > 0 && size > maxSize {
			return false
		}
		out = append(out, e)
		return true
	}
	more := true
	if lo < l.cacheFirst {
		next := lo
		err := l.s.scan(l.group, lo, min(hi, l.cacheFirst), func(e *pb.Entry) (bool, error) {
			if e.GetIndex() != next {
				return false, oerr.Errorf("host.entries", oerr.Corrupt, "log of group %d: read entry %d, expected %d", l.group, e.GetIndex(), next)
			}
			next++
			more = add(e) && size < max(maxSize, scanPageBytes)
			return more, nil
		})
		if err != nil {
			return nil, err
		}
		if more && next != min(hi, l.cacheFirst) {
			return nil, oerr.Errorf("host.entries", oerr.Corrupt, "log of group %d: read up to entry %d, expected %d", l.group, next-1, min(hi, l.cacheFirst)-1)
		}
		lo = next
	}
	if more && lo < hi {
		cached := l.cache[lo-l.cacheFirst : hi-l.cacheFirst]
		if out == nil {
			out = make([]*pb.Entry, 0, len(cached))
		}
		for _, e := range cached {
			if !add(e) {
				break
			}
		}
	}
	return out, nil
}

// Snapshot implements raft.Storage: only metadata; the rows are streamed from the state store.
func (l *groupLog) Snapshot() (*pb.Snapshot, error) {
	id, members := l.applied()
	if id.index == 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(id.index), Term: new(id.term), ConfState: confState(members)}}, nil
}

// appended takes over entries that the writer has written.
func (l *groupLog) appended(es []*pb.Entry) {
	if len(es) == 0 {
		return
	}
	first := es[0].GetIndex()
	if first <= l.last.index { // a conflicting suffix was overwritten
		if first >= l.cacheFirst {
			for _, e := range l.cache[first-l.cacheFirst:] {
				l.uncount(e)
			}
			l.cache = l.cache[:first-l.cacheFirst]
		} else {
			l.dropCache()
			l.cacheFirst = first
		}
	}
	if len(l.cache) == 0 {
		l.cacheFirst = first
	}
	for _, e := range es {
		n := int64(len(e.Data)) + entryOverhead
		l.s.cacheSz += n
		l.bytes += uint64(n)
	}
	l.cache = append(l.cache, es...)
	l.last = entryID{es[len(es)-1].GetIndex(), es[len(es)-1].GetTerm()}
	if l.s.cacheSz > l.s.cacheLm {
		l.evict(l.last.index, l.s.cacheSz-l.s.cacheLm)
	}
}

func (l *groupLog) uncount(e *pb.Entry) { l.s.cacheSz -= int64(len(e.Data)) + entryOverhead }

func (l *groupLog) dropCache() {
	for _, e := range l.cache {
		l.uncount(e)
	}
	l.cache, l.cacheFirst = nil, l.last.index+1
}

// evict drops cached entries up to index, at most about want bytes of them; want < 0: all of them.
func (l *groupLog) evict(index uint64, want int64) {
	n := 0
	for n < len(l.cache) && l.cache[n].GetIndex() <= index && want != 0 {
		size := int64(len(l.cache[n].Data)) + entryOverhead
		l.s.cacheSz -= size
		if want > 0 {
			want = max(0, want-size)
		}
		n++
	}
	if n > 0 {
		clear(l.cache[:n])
		l.cache = l.cache[n:]
		l.cacheFirst += uint64(n)
		if len(l.cache) == 0 {
			l.cache = nil
		}
	}
}

// reset makes the log empty at id, after a snapshot.
func (l *groupLog) reset(id entryID) {
	l.trunc, l.last, l.bytes = id, id, 0
	l.dropCache()
}

// appendTask is what raft wants on stable storage: entries, a hard state or a snapshot's position, for one group.
type appendTask struct {
	r         *replica
	entries   []*pb.Entry
	hs        hardState
	writeHS   bool
	reset     *entryID // the log becomes empty here
	trunc     *entryID // the log begins after this
	sync      bool
	install   *stagedSnapshot
	responses []*pb.Message
}

// write puts all tasks into one batch, with one sync if any of them needs it.
func (s *logStore) write(tasks []*appendTask) (bytes int, synced bool, err error) {
	b := s.db.NewBatch()
	defer func() { err = errors.Join(err, b.Close()) }()
	for _, t := range tasks {
		synced = synced || t.sync
		if err := s.writeTask(b, t); err != nil {
			return 0, false, err
		}
	}
	if b.Empty() {
		return 0, false, nil
	}
	opt := pebble.NoSync
	if synced {
		opt = pebble.Sync
	}
	bytes = b.Len()
	if err := b.Commit(opt); err != nil {
		return 0, false, fmt.Errorf("log store: commit: %w", err)
	}
	return bytes, synced, nil
}

func (s *logStore) writeTask(b *pebble.Batch, t *appendTask) error {
	l, g := t.r.log, t.r.group
	cut := func(lo, hi uint64) error {
		return b.DeleteRange(entryKey(nil, g, lo), entryKey(nil, g, hi), nil)
	}
	for _, id := range []*entryID{t.reset, t.trunc} {
		if id == nil {
			continue
		}
		if err := cut(0, id.index+1); err != nil {
			return err
		}
		if err := b.Set(prefix(g, logTrunc), id.encode(nil), nil); err != nil {
			return err
		}
	}
	if t.reset != nil {
		if l.wlast > t.reset.index {
			if err := cut(t.reset.index+1, l.wlast+1); err != nil {
				return err
			}
		}
		l.wlast = t.reset.index
	}
	for _, e := range t.entries {
		s.keyBuf = entryKey(s.keyBuf[:0], g, e.GetIndex())
		op := b.SetDeferred(len(s.keyBuf), entryValueLen(e))
		copy(op.Key, s.keyBuf)
		putEntryValue(op.Value, e)
		if err := op.Finish(); err != nil {
			return err
		}
	}
	if n := len(t.entries); n > 0 {
		last := t.entries[n-1].GetIndex()
		if last < l.wlast {
			if err := cut(last+1, l.wlast+1); err != nil {
				return err
			}
		}
		l.wlast = last
	}
	if t.writeHS {
		s.keyBuf, s.valBuf = putPrefix(s.keyBuf[:0], g, logHard), t.hs.encode(s.valBuf[:0])
		return b.Set(s.keyBuf, s.valBuf, nil)
	}
	return nil
}
