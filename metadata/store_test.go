package metadata

import (
	"bytes"
	"errors"
	"sort"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"objstore/internal/ident"
	"objstore/metadata/host"
)

// memStore is a host.ReadWriter in memory that is as unkind as the interface allows: values are overwritten at the next
// write, keys and values of an iterator at its next move, and a write under an open iterator panics.
type memStore struct {
	keys  []string
	rows  map[string][]byte
	lent  [][]byte
	iters int
	moves int // of iterators
}

func newMemStore() *memStore { return &memStore{rows: map[string][]byte{}} }

func poison(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}

func (s *memStore) write() {
	if s.iters > 0 {
		panic("write under an open iterator")
	}
	for _, b := range s.lent {
		poison(b)
	}
	s.lent = s.lent[:0]
}

func (s *memStore) Get(key []byte) ([]byte, bool, error) {
	v, ok := s.rows[string(key)]
	if !ok {
		return nil, false, nil
	}
	v = bytes.Clone(v)
	s.lent = append(s.lent, v)
	return v, true, nil
}

func (s *memStore) find(key string) int { return sort.SearchStrings(s.keys, key) }

func (s *memStore) Set(key, value []byte) error {
	s.write()
	k := string(key)
	if _, ok := s.rows[k]; !ok {
		i := s.find(k)
		s.keys = append(s.keys, "")
		copy(s.keys[i+1:], s.keys[i:])
		s.keys[i] = k
	}
	s.rows[k] = append([]byte{}, value...)
	return nil
}

func (s *memStore) Delete(key []byte) error {
	s.write()
	k := string(key)
	if _, ok := s.rows[k]; ok {
		delete(s.rows, k)
		i := s.find(k)
		s.keys = append(s.keys[:i], s.keys[i+1:]...)
	}
	return nil
}

func (s *memStore) DeleteRange(lower, upper []byte) error {
	s.write()
	i, j := s.find(string(lower)), s.find(string(upper))
	if i > j {
		return errors.New("inverted range")
	}
	for _, k := range s.keys[i:j] {
		delete(s.rows, k)
	}
	s.keys = append(s.keys[:i], s.keys[j:]...)
	return nil
}

func (s *memStore) Iter(lower, upper []byte) (host.Iterator, error) {
	if upper != nil && bytes.Compare(lower, upper) > 0 {
		return nil, errors.New("inverted bounds")
	}
	s.iters++
	return &memIter{s: s, lower: string(lower), upper: string(upper), unbounded: upper == nil, at: -1}, nil
}

type memIter struct {
	s            *memStore
	lower, upper string
	unbounded    bool
	at           int
	key, value   []byte
}

func (it *memIter) load() bool {
	it.s.moves++
	poison(it.key)
	poison(it.value)
	if it.at >= len(it.s.keys) || !it.unbounded && it.s.keys[it.at] >= it.upper {
		it.at = len(it.s.keys)
		return false
	}
	it.key = []byte(it.s.keys[it.at])
	it.value = bytes.Clone(it.s.rows[it.s.keys[it.at]])
	return true
}

func (it *memIter) Next() bool {
	if it.at < 0 {
		return it.SeekGE([]byte(it.lower))
	}
	it.at++
	return it.load()
}

func (it *memIter) SeekGE(key []byte) bool {
	it.at = it.s.find(max(it.lower, string(key)))
	return it.load()
}

func (it *memIter) Key() []byte   { return it.key }
func (it *memIter) Value() []byte { return it.value }
func (it *memIter) Close() error  { it.s.iters--; return nil }

func (s *memStore) dump() map[string]string {
	out := make(map[string]string, len(s.rows))
	for k, v := range s.rows {
		out[k] = string(v)
	}
	return out
}

// pebbleStore is a host.ReadWriter over an indexed batch of a real Pebble in memory.
type pebbleStore struct {
	db *pebble.DB
	b  *pebble.Batch
}

func newPebbleStore(tb testing.TB) *pebbleStore {
	opts := &pebble.Options{FS: vfs.NewMem(), DisableWAL: true, Logger: quiet{}, FormatMajorVersion: pebble.FormatNewest, MemTableSize: 16 << 20}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // apply looks for many rows that are not there
	}
	db, err := pebble.Open("state", opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &pebbleStore{db: db, b: db.NewIndexedBatch()}
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { panic(f) }

func (s *pebbleStore) commit(tb testing.TB) {
	if err := s.b.Commit(pebble.NoSync); err != nil {
		tb.Fatal(err)
	}
	s.b = s.db.NewIndexedBatch()
}

// get copies; a host may keep the closer until the next write instead.
func get(r pebble.Reader, key []byte) ([]byte, bool, error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	v = append([]byte{}, v...)
	return v, true, closer.Close()
}

func (s *pebbleStore) Get(key []byte) ([]byte, bool, error) { return get(s.b, key) }
func (s *pebbleStore) Set(key, value []byte) error          { return s.b.Set(key, value, nil) }
func (s *pebbleStore) Delete(key []byte) error              { return s.b.Delete(key, nil) }
func (s *pebbleStore) DeleteRange(l, u []byte) error        { return s.b.DeleteRange(l, u, nil) }
func (s *pebbleStore) Iter(l, u []byte) (host.Iterator, error) {
	return pebbleIter(s.b, l, u)
}

func pebbleIter(r pebble.Reader, l, u []byte) (host.Iterator, error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: l, UpperBound: u})
	return &pebbleIterator{Iterator: it}, err
}

// pebbleIterator stands before its first row, which a new Pebble iterator does not.
type pebbleIterator struct {
	*pebble.Iterator
	placed bool
}

func (it *pebbleIterator) Next() bool {
	if !it.placed {
		it.placed = true
		return it.First()
	}
	return it.Iterator.Next()
}

func (it *pebbleIterator) SeekGE(key []byte) bool {
	it.placed = true
	return it.Iterator.SeekGE(key)
}

// pebbleView reads what is committed, without a batch.
type pebbleView struct{ db *pebble.DB }

func (v pebbleView) Get(key []byte) ([]byte, bool, error)    { return get(v.db, key) }
func (v pebbleView) Iter(l, u []byte) (host.Iterator, error) { return pebbleIter(v.db, l, u) }
func (s *pebbleStore) dump(tb testing.TB) map[string]string {
	out := map[string]string{}
	it, err := s.Iter([]byte{0}, []byte{0xff})
	if err != nil {
		tb.Fatal(err)
	}
	for it.Next() {
		out[string(it.Key())] = string(it.Value())
	}
	if err := it.Close(); err != nil {
		tb.Fatal(err)
	}
	return out
}

// testID makes a recognisable identifier.
func testID(kind byte, n int) ident.ID {
	return ident.ID{kind, byte(n >> 16), byte(n >> 8), byte(n), 0xee}
}
