package store

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

// recover brings index, segments and files into agreement. After a Close in order there is nothing to do.
func (d *drive) recover(fresh bool) error {
	clean, err := d.index.clearClean()
	if err != nil {
		return err
	}
	numbers, err := d.listSegments()
	if err != nil {
		return err
	}
	mark, _, err := d.index.watermark()
	if err != nil {
		return err
	}
	last := mark.Segment
	var tail *segmentHeader // of the highest segment
	end := int64(headerSize)
	for _, n := range numbers {
		last = max(last, n)
		tail = nil
		if n < mark.Segment {
			continue
		}
		if clean && n == mark.Segment {
			end = int64(mark.Offset)
		} else {
			end = headerSize
		}
		from := int64(headerSize)
		if n == mark.Segment && !fresh {
			from = max(from, int64(mark.Offset))
		}
		if tail, err = d.openTail(n); err != nil {
			return err
		}
		if tail == nil || clean {
			continue
		}
		if end, err = d.scanSegment(tail, from); err != nil {
			return err
		}
	}
	if !clean {
		if err := d.reconcile(fresh); err != nil {
			return err
		}
		if err := d.index.flush(); err != nil {
			return err
		}
	}
	if err := d.resume(last, tail, end); err != nil {
		return err
	}
	return d.findDead(numbers)
}

func (d *drive) listSegments() ([]uint64, error) {
	names, err := d.fs.ReadDir(d.segmentsDir())
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, name := range names {
		if n, ok := parseSegmentName(name); ok {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil // names sort as numbers do
}

// resume makes the highest segment the active one when it has a header and room; the first write makes a new one otherwise.
func (d *drive) resume(last uint64, tail *segmentHeader, end int64) error {
	l := &d.log
	l.number = last
	if d.index.lastSegment() > l.number {
		l.number = d.index.lastSegment()
	}
	if tail != nil && tail.Number == l.number && end+headerSize <= tail.Size {
		f, err := d.fs.Open(d.segmentPath(tail.Number), d.openFlags(syscall.O_RDWR))
		if err != nil {
			return err
		}
		l.active, l.generation, l.size, l.pos = f, tail.Generation, tail.Size, end
	}
	l.publish()
	return nil
}

// findDead queues full segments without a live record, forgets those that are gone, and queues the holes that were left.
func (d *drive) findDead(numbers []uint64) error {
	there := map[uint64]bool{}
	for _, n := range numbers {
		there[n] = true
		if n != d.log.number && d.index.live(n) == 0 {
			d.rec.dead(n)
		}
	}
	for _, n := range d.index.emptySegments() {
		if !there[n] && n != d.log.number {
			if err := d.index.dropSegment(n); err != nil {
				return err
			}
		}
	}
	holes, err := d.index.holes(maxHoles)
	if err != nil {
		return err
	}
	if len(holes) == maxHoles {
		d.rec.mu.more = true // not running yet
	} else {
		d.rec.punch(holes)
	}
	return nil
}

// openTail reads a segment's header; nil when it has none that can be believed.
func (d *drive) openTail(number uint64) (*segmentHeader, error) {
	path := d.segmentPath(number)
	f, err := d.fs.Open(path, syscall.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, headerSize)
	n, err := f.Pread(b, 0)
	if err != nil {
		return nil, err
	}
	h, err := decodeSegmentHeader(b[:n])
	if err == nil && (h.owner != d.owner || h.Number != number) {
		err = corrupt("%s: read the header of segment %d on drive %s", path, h.Number, h.UUID)
	}
	if err == nil {
		if row, ok := d.index.segment(number); !ok || row.Generation.IsZero() {
			return &h, d.index.addSegment(number, h.Generation)
		}
		return &h, nil
	}
	if row, ok := d.index.segment(number); ok && !row.Generation.IsZero() {
		size, serr := f.Size()
		if serr != nil {
			return nil, serr
		}
		return &segmentHeader{owner: d.owner, Generation: row.Generation, Number: number, Size: size}, nil
	}
	if isZero(b[:n]) { // cut short while it was made: no record went in before the header was durable
		if pos, serr := f.SeekData(int64(n)); errors.Is(serr, syscall.ENXIO) || (serr == nil && pos < int64(n)) {
			return nil, d.fs.Remove(path)
		}
	}
	return nil, d.fs.Rename(path, path+".bad") // what it has can be told from nothing: repair makes it again
}

func isZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// scanSegment replays the log of one segment from the given offset and returns where it ends.
func (d *drive) scanSegment(h *segmentHeader, from int64) (end int64, err error) {
	f, err := d.fs.Open(d.segmentPath(h.Number), syscall.O_RDWR)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	// What is found may have been written and not synced before the process died.
	if err := f.Fdatasync(); err != nil {
		return 0, err
	}
	end = from
	b := make([]byte, headerSize+shard.SegmentLimit)
	for pos := from; pos+headerSize <= h.Size; {
		n, err := f.Pread(b[:headerSize], pos)
		if err != nil {
			return 0, err
		}
		if n < headerSize {
			break
		}
		if isZero(b[:headerSize]) {
			next, err := f.SeekData(pos)
			if errors.Is(err, syscall.ENXIO) {
				break
			}
			pos += headerSize
			if err == nil && next > pos {
				pos = next / headerSize * headerSize
			}
			continue
		}
		size, err := d.replay(f, h, b, pos)
		if err != nil {
			return 0, err
		}
		if size == 0 { // nothing that belongs here: a torn write, or the inside of one
			pos += headerSize
			continue
		}
		pos += size
		end = pos
	}
	return end, nil
}

// replay applies the block at pos, whose header is in b, and returns its size; 0 when there is none.
func (d *drive) replay(f File, h *segmentHeader, b []byte, pos int64) (int64, error) {
	mark := &position{h.Number, 0}
	if t, err := decodeTombstone(b[:headerSize]); err == nil {
		if t.owner != d.owner || t.Generation != h.Generation || t.Segment != h.Number || int64(t.Offset) != pos {
			return 0, nil
		}
		var changes []change
		for _, k := range t.Keys {
			old, ok, err := d.index.get(k)
			if err != nil {
				return 0, err
			}
			if ok {
				changes = append(changes, change{key: k, old: &old})
			}
		}
		mark.Offset = uint64(pos + headerSize)
		_, err := d.index.apply(changes, mark)
		return headerSize, err
	}
	rec, err := decodeHeader(b[:headerSize])
	if err != nil || rec.Kind != kindRecord || rec.owner != d.owner || rec.Generation != h.Generation || rec.Segment != h.Number || int64(rec.Offset) != pos {
		return 0, nil
	}
	size := headerSize + int64(rec.Spec.Length)
	cells := b[headerSize:size]
	n, err := f.Pread(cells, pos+headerSize)
	if err != nil {
		return 0, err
	}
	s := &rec.Spec
	if n < len(cells) || shard.CheckBlocks(s.Blob, s.Index, 0, cells, rec.CRCs) != nil {
		return size, nil // torn: never acknowledged. Its place is not used again
	}
	key := keyOf(s.Blob, s.Index)
	r := row{Kind: rowRecord, Length: s.Length, Digest: rec.Digest, Segment: h.Number, Offset: uint64(pos), ncrc: uint8(len(rec.CRCs))}
	copy(r.crcs[:], rec.CRCs)
	c := change{key: key, new: &r}
	old, ok, err := d.index.get(key)
	if err != nil {
		return 0, err
	}
	if ok {
		if old.Kind == rowRecord && old.Segment == r.Segment && old.Offset == r.Offset {
			return size, nil
		}
		c.old = &old
	}
	mark.Offset = uint64(pos + size)
	_, err = d.index.apply([]change{c}, mark)
	return size, err
}

// reconcile compares the 256 folders of files with their rows.
func (d *drive) reconcile(fresh bool) error {
	for i := range 256 {
		if err := d.reconcileDir(byte(i), fresh); err != nil {
			return err
		}
	}
	return nil
}

func (d *drive) reconcileDir(first byte, fresh bool) error {
	dir := shardDir(d.cfg.Path, first)
	names, err := d.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	rows, err := d.fileRows(first)
	if err != nil {
		return err
	}
	dirty := false
	for _, name := range names {
		key, ok := parseShardName(name)
		if !ok || key[0] != first {
			if strings.HasSuffix(name, repairSuffix) {
				if err := d.fs.Remove(filepath.Join(dir, name)); err != nil {
					return err
				}
				dirty = true
			}
			continue
		}
		if _, ok := rows[key]; ok {
			delete(rows, key)
			continue
		}
		if err := d.adopt(key, fresh); err != nil {
			return err
		}
		dirty = true
	}
	if dirty {
		if err := d.fs.SyncDir(dir); err != nil {
			return err
		}
	}
	var changes []change
	for key, r := range rows { // somebody removed the file
		changes = append(changes, change{key: key, old: &r})
	}
	if len(changes) > 0 {
		_, err = d.index.apply(changes, nil)
	}
	return err
}

func (d *drive) fileRows(first byte) (map[rowKey]row, error) {
	rows := map[rowKey]row{}
	upper := []byte{'b', first + 1}
	if first == 255 {
		upper = []byte{'c'}
	}
	err := d.index.scan([]byte{'b', first}, upper, func(k, v []byte) (bool, error) {
		r, err := decodeRow(v)
		if err == nil && len(k) != 1+keySize {
			err = corrupt("index row: read a key of %d bytes, expected %d", len(k), 1+keySize)
		}
		if err != nil {
			return false, err
		}
		if r.Kind == rowFile {
			rows[rowKey(k[1:])] = r
		}
		return true, nil
	})
	return rows, err
}

func parseShardName(name string) (rowKey, bool) {
	hex, idx, ok := strings.Cut(name, ".")
	if !ok || len(idx) != 2 {
		return rowKey{}, false
	}
	blob, err := ident.Parse(hex)
	n, nerr := strconv.ParseUint(idx, 10, 8)
	key := keyOf(blob, uint8(n))
	return key, err == nil && nerr == nil && n < maxShards && filepath.Base(shardPath("", key)) == name
}

// adopt decides about a file without a row. With the index at hand that means a crash before the row was flushed, and the
// file is believed only if all of it is right; otherwise it was never acknowledged and goes. When the index was lost, files
// with a good footer are believed (the verify pass will look at their cells), others kept as corrupt.
func (d *drive) adopt(key rowKey, fresh bool) error {
	path := shardPath(d.cfg.Path, key)
	f, err := d.fs.Open(path, syscall.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, readPiece)
	r, ft, err := d.readWhole(f, b, key)
	if err == nil && !fresh {
		err = d.verifyCells(context.Background(), f, b, ft.Blob, ft.Index, ft.Length, ft.CRCs)
	}
	switch {
	case err == nil:
		if err := f.Fdatasync(); err != nil {
			return err
		}
	case !oerr.IsCorrupt(err):
		return err
	case !fresh || r.Length == 0:
		return d.fs.Remove(path)
	default:
		r.Torn = true
	}
	_, err = d.index.apply([]change{{key: key, new: &r}}, nil)
	return err
}

// readWhole reads header and footer of a file about which nothing else is known.
func (d *drive) readWhole(f File, b []byte, key rowKey) (row, footer, error) {
	r := row{Kind: rowFile}
	if err := d.readExactly(f, b[:headerSize], 0, key); err != nil {
		return r, footer{}, err
	}
	h, err := decodeHeader(b[:headerSize])
	if err != nil {
		return r, footer{}, err
	}
	if h.owner != d.owner || h.Kind != kindFile || keyOf(h.Spec.Blob, h.Spec.Index) != key {
		return r, footer{}, corrupt("shard %s.%d: read the header of shard %s.%d", key.blob(), key.index(), h.Spec.Blob, h.Spec.Index)
	}
	r.Length = h.Spec.Length
	fb := b[:footerSize(r.Length)]
	if err := d.readExactly(f, fb, headerSize+int64(r.Length), key); err != nil {
		return r, footer{}, err
	}
	ft, err := decodeFooter(fb)
	if err != nil {
		return r, footer{}, err
	}
	r.Digest = ft.Digest
	return r, ft, checkFooter(&ft, d.owner, key, &r)
}
