package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"

	"objstore/internal/ident"
)

// stateStore is the Pebble without a WAL that holds the applied rows of all groups of a drive.
type stateStore struct {
	db *pebble.DB
}

// meta reads how far a group is applied. Absent is the zero value: an empty replica.
func (s *stateStore) meta(g ident.Group) (appliedMeta, error) {
	v, c, err := s.db.Get(prefix(g, stateMeta))
	if errors.Is(err, pebble.ErrNotFound) {
		return appliedMeta{}, nil
	}
	if err != nil {
		return appliedMeta{}, fmt.Errorf("state store: %w", err)
	}
	m, err := decodeAppliedMeta(v)
	return m, errors.Join(err, c.Close())
}

// durable reads which of the groups is applied and flushed how far: what survives a crash.
func (s *stateStore) durable(groups []ident.Group) (map[ident.Group]uint64, error) {
	it, err := s.db.NewIter(&pebble.IterOptions{OnlyReadGuaranteedDurable: true})
	if err != nil {
		return nil, fmt.Errorf("state store: %w", err)
	}
	out := make(map[ident.Group]uint64, len(groups))
	for _, g := range groups {
		key := prefix(g, stateMeta)
		if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
			continue
		}
		m, err := decodeAppliedMeta(it.Value())
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		out[g] = m.index
	}
	return out, it.Close()
}

// put writes a group's first applied row and flushes it; older rows of the group go.
func (s *stateStore) put(g ident.Group, m *appliedMeta) error {
	b := s.db.NewBatch()
	defer b.Close()
	if err := b.DeleteRange(prefix(g, 0), groupEnd(g), nil); err != nil {
		return err
	}
	if m != nil {
		if err := b.Set(prefix(g, stateMeta), m.encode(), nil); err != nil {
			return err
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("state store: commit: %w", err)
	}
	return s.flush()
}

func (s *stateStore) flush() error {
	if err := s.db.Flush(); err != nil {
		return fmt.Errorf("state store: flush: %w", err)
	}
	return nil
}

// install replaces everything of the group by the staged tables, atomically and durably.
func (s *stateStore) install(g ident.Group, paths []string) error {
	_, err := s.db.IngestAndExcise(context.Background(), paths, nil, nil, pebble.KeyRange{Start: prefix(g, 0)[:4], End: groupEnd(g)})
	if err != nil {
		return fmt.Errorf("state store: install: %w", err)
	}
	return nil
}

// rows iterates over the group's rows as they are now; meta too when withMeta.
func (s *stateStore) rows(g ident.Group, withMeta bool) (*pebble.Iterator, error) {
	kind := byte(stateRow)
	if withMeta {
		kind = stateMeta
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix(g, kind), UpperBound: groupEnd(g)})
	if err != nil {
		return nil, fmt.Errorf("state store: %w", err)
	}
	return it, nil
}

// hashRows hashes the rows that it iterates over, and closes it.
func hashRows(it *pebble.Iterator, stop <-chan struct{}) (uint64, error) {
	h := xxhash.New()
	var n [8]byte
	rows := 0
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return 0, errors.Join(err, it.Close())
		}
		hashRow(h, &n, it.Key()[prefixLen:], v)
		if rows++; rows%1024 == 0 {
			select {
			case <-stop:
				return 0, errors.Join(context.Canceled, it.Close())
			default:
			}
		}
	}
	return h.Sum64(), it.Close()
}

// source is what a view or an apply reads from: a snapshot or an indexed batch.
type source interface {
	Get([]byte) ([]byte, io.Closer, error)
	NewIter(*pebble.IterOptions) (*pebble.Iterator, error)
}

// reader implements Reader on a source.
type reader struct {
	src     source
	group   ident.Group
	key     []byte // the group's row prefix; Get appends to it
	closers []io.Closer
}

func newReader(src source, g ident.Group) reader {
	return reader{src: src, group: g, key: putPrefix(make([]byte, 0, 64), g, stateRow)}
}

// Get implements Reader.
func (r *reader) Get(key []byte) ([]byte, bool, error) {
	r.key = append(r.key[:prefixLen], key...)
	v, c, err := r.src.Get(r.key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("state store: %w", err)
	}
	r.closers = append(r.closers, c)
	return v, true, nil
}

// Iter implements Reader.
func (r *reader) Iter(lower, upper []byte) (Iterator, error) {
	p := r.key[:prefixLen:prefixLen]
	opts := &pebble.IterOptions{LowerBound: slices.Concat(p, lower), UpperBound: groupEnd(r.group)}
	if upper != nil {
		opts.UpperBound = slices.Concat(p, upper)
	}
	it, err := r.src.NewIter(opts)
	if err != nil {
		return nil, fmt.Errorf("state store: %w", err)
	}
	return &iterator{it: it, p: p}, nil
}

func (r *reader) release() error {
	var err error
	for i, c := range r.closers {
		err = errors.Join(err, c.Close())
		r.closers[i] = nil
	}
	r.closers = r.closers[:0]
	return err
}

type iterator struct {
	it      *pebble.Iterator
	p       []byte
	started bool
	seek    []byte
	err     error // of a value that could not be read
}

func (i *iterator) Next() bool {
	if i.started {
		return i.it.Next()
	}
	i.started = true
	return i.it.First()
}

func (i *iterator) SeekGE(key []byte) bool {
	i.started = true
	i.seek = append(append(i.seek[:0], i.p...), key...)
	return i.it.SeekGE(i.seek)
}

func (i *iterator) Key() []byte { return i.it.Key()[prefixLen:] }

// Value returns nil when the value could not be read; Close then says why.
func (i *iterator) Value() []byte {
	v, err := i.it.ValueAndErr()
	if err != nil && i.err == nil {
		i.err = err
	}
	return v
}

func (i *iterator) Close() error { return errors.Join(i.err, i.it.Close()) }

// writer implements ReadWriter on an indexed batch.
type writer struct {
	reader
	b *pebble.Batch
}

func (w *writer) write(key []byte) []byte {
	w.key = append(w.key[:prefixLen], key...)
	return w.key
}

// Set implements ReadWriter.
func (w *writer) Set(key, value []byte) error {
	return errors.Join(w.b.Set(w.write(key), value, nil), w.release())
}

// Delete implements ReadWriter.
func (w *writer) Delete(key []byte) error {
	return errors.Join(w.b.Delete(w.write(key), nil), w.release())
}

// DeleteRange implements ReadWriter.
func (w *writer) DeleteRange(lower, upper []byte) error {
	end := groupEnd(w.group)
	if upper != nil {
		end = slices.Concat(w.key[:prefixLen], upper)
	}
	return errors.Join(w.b.DeleteRange(w.write(lower), end, nil), w.release())
}
