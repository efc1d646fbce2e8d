package store

import (
	"encoding/binary"

	"objstore/internal/ident"
	"objstore/shard"
)

// rowKey is (blob, index); bytes in that order sort as List must.
type rowKey [keySize]byte

func keyOf(blob ident.ID, index uint8) (k rowKey) {
	copy(k[:], blob[:])
	k[16] = index
	return k
}

func (k rowKey) blob() ident.ID { return ident.ID(k[:16]) }
func (k rowKey) index() uint8   { return k[16] }

const (
	rowVersion = 1
	rowRecord  = 1
	rowFile    = 2
	rowTorn    = 1 // flag: found at a rebuild without a valid footer
	rowFixed   = 36
)

// row is where the index says a shard is. A record's checksums stand in it, a file's in the file's footer.
type row struct {
	Kind    uint8
	Torn    bool
	Length  uint64
	Digest  uint64
	Segment uint64
	Offset  uint64
	crcs    [maxRecordCRCs]uint32
	ncrc    uint8
}

func (r *row) table() []uint32 { return r.crcs[:r.ncrc] }

func (r *row) size() int64 {
	if r.Kind == rowRecord {
		return headerSize + int64(r.Length)
	}
	return fileSize(r.Length)
}

func (r *row) appendTo(b []byte) []byte {
	var flags uint8
	if r.Torn {
		flags |= rowTorn
	}
	b = append(b, rowVersion, r.Kind, flags, r.ncrc)
	b = le.AppendUint64(b, r.Length)
	b = le.AppendUint64(b, r.Digest)
	b = le.AppendUint64(b, r.Segment)
	b = le.AppendUint64(b, r.Offset)
	for _, c := range r.table() {
		b = le.AppendUint32(b, c)
	}
	return b
}

func decodeRow(b []byte) (row, error) {
	if len(b) < rowFixed || b[0] != rowVersion {
		return row{}, corrupt("index row: read %d bytes, expected at least %d of version %d", len(b), rowFixed, rowVersion)
	}
	r := row{Kind: b[1], Torn: b[2]&rowTorn != 0, ncrc: b[3], Length: le.Uint64(b[4:]), Digest: le.Uint64(b[12:]),
		Segment: le.Uint64(b[20:]), Offset: le.Uint64(b[28:])}
	want := 0
	if r.Kind == rowRecord {
		want = shard.Blocks(r.Length)
	}
	if (r.Kind != rowRecord && r.Kind != rowFile) || r.Length == 0 || r.Length > MaxLength || r.Length%shard.Align != 0 ||
		want > maxRecordCRCs || int(r.ncrc) != want || len(b) != rowFixed+4*want || r.Offset > 1<<40 {
		return row{}, corrupt("index row: read kind %d, length %d, %d checksums in %d bytes", r.Kind, r.Length, b[3], len(b))
	}
	for i := range want {
		r.crcs[i] = le.Uint32(b[rowFixed+4*i:])
	}
	return r, nil
}

// position is a place in the segment log.
type position struct {
	Segment uint64
	Offset  uint64
}

// Rows of the index: b + rowKey: row. p + segment, offset (big endian): length of a hole to punch. s + number (big
// endian): segmentRow. And:
const (
	keyWatermark = "mw" // position up to which the index reflects the log
	keyClean     = "mc" // present: closed in order, nothing to scan
	keyCounts    = "mn" // shards, bytes
	keyOwner     = "mo" // uuid, incarnation: whose index this is
)

func shardKey(k rowKey) []byte { return append(append(make([]byte, 0, 1+keySize), 'b'), k[:]...) }

func holeKey(seg, off uint64) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'p'}, seg)
	return binary.BigEndian.AppendUint64(b, off)
}

func segmentKey(seg uint64) []byte { return binary.BigEndian.AppendUint64([]byte{'s'}, seg) }

// pair encodes two numbers, as several rows have them.
func pair(a, b uint64) []byte { return le.AppendUint64(le.AppendUint64(nil, a), b) }

func unpair(b []byte) (uint64, uint64, error) {
	if len(b) != 16 {
		return 0, 0, corrupt("index row: read %d bytes, expected 16", len(b))
	}
	return le.Uint64(b), le.Uint64(b[8:]), nil
}

// segmentRow is what the index keeps about a segment.
type segmentRow struct {
	Generation ident.ID
	Records    int64 // live
	Bytes      int64 // live, headers included
}

func (s *segmentRow) encode() []byte {
	return append(pair(uint64(s.Records), uint64(s.Bytes)), s.Generation[:]...)
}

func decodeSegmentRow(b []byte) (segmentRow, error) {
	if len(b) != 32 {
		return segmentRow{}, corrupt("segment row: read %d bytes, expected 32", len(b))
	}
	s := segmentRow{Records: int64(le.Uint64(b)), Bytes: int64(le.Uint64(b[8:]))}
	copy(s.Generation[:], b[16:])
	return s, nil
}
