package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"objstore/internal/oerr"
)

// index is the drive's Pebble. It has no write-ahead log: its memtables are flushed at checkpoints, and what is lost
// with them is found again by scanning the segment log from the watermark, which every batch that came from the log
// carries. Batches become durable in order, so the flushed state is always the state at one moment.
type index struct {
	dir  string
	db   *pebble.DB
	lock *pebble.Lock
	fs   *indexFS
	mu   struct {
		sync.Mutex
		segments map[uint64]*segmentRow
		counts   counts
	}
	broken   atomic.Pointer[error] // the Pebble gave up: nothing can be trusted to be stored
	gaveUp   chan struct{}         // closed then
	onBroken func(error)
}

type counts struct{ shards, bytes int64 }

// change sets (new) or removes (new nil) one shard's row. old is the row it has, nil for none: whoever makes a change
// holds the claim on the shard, so old is not guessed.
type change struct {
	key      rowKey
	old, new *row
}

// hole is space of a segment that no row needs any more.
type hole struct {
	segment, offset, length uint64
}

// rebuildMark, when it exists beside the index, asks the next Open to make the index anew.
const rebuildMark = "index.rebuild"

// openIndex opens the index of a drive, or makes an empty one. fresh says that it is new (or of another incarnation,
// or damaged) and everything has to be found by scanning.
func openIndex(drivePath string, o owner, onBroken func(error)) (x *index, fresh bool, err error) {
	x = &index{dir: filepath.Join(drivePath, "index"), onBroken: onBroken, fs: newIndexFS(), gaveUp: make(chan struct{})}
	x.mu.segments = map[uint64]*segmentRow{}
	if err := os.MkdirAll(x.dir, 0o700); err != nil {
		return nil, false, fmt.Errorf("index: %w", err)
	}
	if x.lock, err = pebble.LockDirectory(x.dir, x.fs); err != nil {
		return nil, false, oerr.E("store.index", oerr.InvalidArgument, fmt.Errorf("index %s is in use by another process: %w", x.dir, err))
	}
	mark := filepath.Join(drivePath, rebuildMark)
	_, serr := os.Stat(mark)
	if errors.Is(serr, os.ErrNotExist) {
		if fresh, err = x.open(o); err == nil {
			if err = x.load(); err == nil {
				return x, fresh, nil
			}
			x.db.Close()
		}
		if errors.Is(err, syscall.EIO) {
			x.lock.Close()
			return nil, false, err
		}
	}
	if err := x.wipe(); err != nil {
		x.lock.Close()
		return nil, false, err
	}
	os.Remove(mark)
	x.broken.Store(nil)
	x.gaveUp = make(chan struct{})
	x.mu.segments, x.mu.counts = map[uint64]*segmentRow{}, counts{}
	if _, err = x.open(o); err != nil {
		x.lock.Close()
		return nil, false, err
	}
	return x, true, nil
}

// wipe empties the folder but for the lock that is held.
func (x *index) wipe() error {
	names, err := os.ReadDir(x.dir)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	for _, n := range names {
		if n.Name() == "LOCK" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(x.dir, n.Name())); err != nil {
			return fmt.Errorf("index: %w", err)
		}
	}
	return nil
}

func (x *index) open(o owner) (fresh bool, err error) {
	opts := &pebble.Options{
		FS:                          x.fs,
		Lock:                        x.lock,
		CacheSize:                   indexCacheBytes,
		MemTableSize:                indexTableBytes,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                64,
		DisableWAL:                  true,
		FormatMajorVersion:          pebble.FormatNewest,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 1 },
		Logger:                      indexLogger{x},
		EventListener:               &pebble.EventListener{BackgroundError: x.background},
	}
	if x.db, err = pebble.Open(x.dir, opts); err != nil {
		return false, fmt.Errorf("index: %w", err)
	}
	want := append(append([]byte(nil), o.UUID[:]...), pair(uint64(o.Incarnation), uint64(o.Drive))...)
	got, err := x.raw(keyOwner)
	switch {
	case err != nil:
	case got == nil:
		return true, x.db.Set([]byte(keyOwner), want, pebble.NoSync)
	case string(got) != string(want):
		err = fmt.Errorf("index: belongs to drive uuid %x, expected %x", got, want)
	default:
		return false, nil
	}
	x.db.Close()
	return false, err
}

// load reads what is kept in memory.
func (x *index) load() error {
	b, err := x.raw(keyCounts)
	if err != nil {
		return err
	}
	if b != nil {
		n, size, err := unpair(b)
		if err != nil {
			return err
		}
		x.mu.counts = counts{int64(n), int64(size)}
	}
	return x.scan([]byte{'s'}, []byte{'t'}, func(k, v []byte) (bool, error) {
		s, err := decodeSegmentRow(v)
		if err == nil && len(k) != 9 {
			err = corrupt("segment row: read a key of %d bytes, expected 9", len(k))
		}
		if err == nil {
			x.mu.segments[binary.BigEndian.Uint64(k[1:])] = &s
		}
		return true, err
	})
}

// indexLogger swallows Pebble's messages; what it calls fatal breaks the index instead of ending the process.
type indexLogger struct{ x *index }

func (indexLogger) Infof(string, ...any)           {}
func (indexLogger) Errorf(string, ...any)          {}
func (l indexLogger) Fatalf(f string, args ...any) { l.x.breakIt(fmt.Errorf(f, args...)) }

func (x *index) background(err error) {
	if !isNoSpace(err) && !errors.Is(err, pebble.ErrCancelledCompaction) {
		x.breakIt(err)
	}
}

func (x *index) breakIt(err error) {
	if x.broken.CompareAndSwap(nil, &err) {
		close(x.gaveUp)
		// Best effort: without the mark the next start finds the damage itself or scans from the last flush.
		os.WriteFile(filepath.Join(filepath.Dir(x.dir), rebuildMark), nil, 0o600)
		x.onBroken(fmt.Errorf("index: %w", err))
	}
}

// raw returns a copy of a row; nil when there is none.
func (x *index) raw(key string) ([]byte, error) {
	v, closer, err := x.db.Get([]byte(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, x.readError(err)
	}
	b := append([]byte{}, v...)
	return b, closer.Close()
}

func (x *index) readError(err error) error {
	if pebble.IsCorruptionError(err) {
		x.breakIt(err)
	}
	return oerr.E("store.index", oerr.Unavailable, err)
}

// get returns a shard's row.
func (x *index) get(key rowKey) (row, bool, error) {
	var k [1 + keySize]byte
	k[0] = 'b'
	copy(k[1:], key[:])
	v, closer, err := x.db.Get(k[:])
	if errors.Is(err, pebble.ErrNotFound) {
		return row{}, false, nil
	}
	if err != nil {
		return row{}, false, x.readError(err)
	}
	r, err := decodeRow(v)
	closer.Close()
	if err != nil {
		return row{}, false, x.readError(fmt.Errorf("%w: %w", pebble.ErrCorruption, err))
	}
	return r, true, nil
}

// apply makes changes visible in one batch and returns the space that they freed. mark, if not nil, is the log position
// that the batch reflects.
func (x *index) apply(changes []change, mark *position) ([]hole, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if broken := x.broken.Load(); broken != nil {
		return nil, *broken
	}
	b := x.db.NewBatch()
	defer b.Close()
	var holes []hole
	var buf []byte
	touched := map[uint64]*segmentRow{}
	for i := range changes {
		c := &changes[i]
		if c.old != nil {
			x.countLocked(c.old, -1, touched)
			if c.old.Kind == rowRecord && (c.new == nil || c.new.Kind != rowRecord || c.new.Segment != c.old.Segment || c.new.Offset != c.old.Offset) {
				h := hole{c.old.Segment, c.old.Offset, uint64(c.old.size())}
				holes = append(holes, h)
				b.Set(holeKey(h.segment, h.offset), le.AppendUint64(nil, h.length), nil)
			}
		}
		if c.new == nil {
			b.Delete(shardKey(c.key), nil)
			continue
		}
		x.countLocked(c.new, 1, touched)
		buf = c.new.appendTo(buf[:0])
		b.Set(shardKey(c.key), buf, nil)
	}
	for n, s := range touched {
		b.Set(segmentKey(n), s.encode(), nil)
	}
	b.Set([]byte(keyCounts), pair(uint64(x.mu.counts.shards), uint64(x.mu.counts.bytes)), nil)
	if mark != nil {
		b.Set([]byte(keyWatermark), pair(mark.Segment, mark.Offset), nil)
	}
	return holes, b.Commit(pebble.NoSync)
}

func (x *index) countLocked(r *row, sign int64, touched map[uint64]*segmentRow) {
	x.mu.counts.shards += sign
	x.mu.counts.bytes += sign * r.size()
	if r.Kind != rowRecord {
		return
	}
	s := x.mu.segments[r.Segment]
	if s == nil {
		s = &segmentRow{}
		x.mu.segments[r.Segment] = s
	}
	s.Records += sign
	s.Bytes += sign * r.size()
	touched[r.Segment] = s
}

// addSegment remembers a segment's generation.
func (x *index) addSegment(number uint64, generation [16]byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.mu.segments[number]
	if s == nil {
		s = &segmentRow{}
		x.mu.segments[number] = s
	}
	s.Generation = generation
	return x.db.Set(segmentKey(number), s.encode(), pebble.NoSync)
}

// live returns a segment's live records.
func (x *index) live(number uint64) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.mu.segments[number]; s != nil {
		return s.Records
	}
	return 0
}

func (x *index) segment(number uint64) (segmentRow, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.mu.segments[number]; s != nil {
		return *s, true
	}
	return segmentRow{}, false
}

// lastSegment returns the highest number that was ever seen, emptySegments those without a live record.
func (x *index) lastSegment() (last uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n := range x.mu.segments {
		last = max(last, n)
	}
	return last
}

func (x *index) emptySegments() (numbers []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n, s := range x.mu.segments {
		if s.Records == 0 {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

func (x *index) dropSegment(number uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.mu.segments, number)
	return x.db.Delete(segmentKey(number), pebble.NoSync)
}

func (x *index) totals() counts {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.counts
}

func (x *index) watermark() (position, bool, error) {
	b, err := x.raw(keyWatermark)
	if err != nil || b == nil {
		return position{}, false, err
	}
	seg, off, err := unpair(b)
	return position{seg, off}, true, err
}

// dropHoles forgets holes that have been punched, durably.
func (x *index) dropHoles(holes []hole) error {
	b := x.db.NewBatch()
	defer b.Close()
	for _, h := range holes {
		b.Delete(holeKey(h.segment, h.offset), nil)
	}
	return b.Commit(pebble.NoSync)
}

// holes returns up to n holes that are still to be punched.
func (x *index) holes(n int) (holes []hole, err error) {
	err = x.scan([]byte{'p'}, []byte{'q'}, func(k, v []byte) (bool, error) {
		if len(k) != 17 || len(v) != 8 {
			return false, corrupt("hole row: read %d and %d bytes, expected 17 and 8", len(k), len(v))
		}
		holes = append(holes, hole{binary.BigEndian.Uint64(k[1:]), binary.BigEndian.Uint64(k[9:]), le.Uint64(v)})
		return len(holes) < n, nil
	})
	return holes, err
}

// scan calls f for rows from lower up to upper until it returns false.
func (x *index) scan(lower, upper []byte, f func(k, v []byte) (bool, error)) error {
	it, err := x.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return x.readError(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return x.readError(err)
		}
		more, err := f(it.Key(), v)
		if err != nil {
			return x.readError(fmt.Errorf("%w: %w", pebble.ErrCorruption, err))
		}
		if !more {
			break
		}
	}
	if err := it.Error(); err != nil {
		return x.readError(err)
	}
	return nil
}

// shards calls f for each shard's row after the given key (from the first one when after is nil), in order.
func (x *index) shards(after *rowKey, f func(rowKey, row) bool) error {
	lower := []byte{'b'}
	if after != nil {
		lower = append(shardKey(*after), 0)
	}
	return x.scan(lower, []byte{'c'}, func(k, v []byte) (bool, error) {
		if len(k) != 1+keySize {
			return false, corrupt("index row: read a key of %d bytes, expected %d", len(k), 1+keySize)
		}
		r, err := decodeRow(v)
		if err != nil {
			return false, err
		}
		return f(rowKey(k[1:]), r), nil
	})
}

// flush makes everything applied so far durable. Pebble tries a failed flush again and again; this returns at the first
// failure.
func (x *index) flush() error {
	done, err := x.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-x.gaveUp:
		return *x.broken.Load()
	}
}

// setClean marks, durably, that nothing has to be scanned at the next open; clearClean takes that back.
func (x *index) setClean() error {
	if err := x.db.Set([]byte(keyClean), nil, pebble.NoSync); err != nil {
		return err
	}
	return x.flush()
}

func (x *index) clearClean() (was bool, err error) {
	b, err := x.raw(keyClean)
	if err != nil || b == nil {
		return false, err
	}
	if err := x.db.Delete([]byte(keyClean), pebble.NoSync); err != nil {
		return false, err
	}
	return true, x.flush()
}

func (x *index) close() error {
	err := x.db.Close()
	if lerr := x.lock.Close(); err == nil {
		err = lerr
	}
	x.fs.closeRest()
	return err
}
