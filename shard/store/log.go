package store

import "objstore/internal/ident"

// Blocks of the segment log other than records, and the superblock.

// superblock says whose drive a folder is and how it was formatted.
type superblock struct {
	owner
	SegmentSize int64
	Ballast     int64
}

func (s *superblock) encode(b []byte) {
	clear(b)
	putPrefix(b, kindSuper, 0, s.owner)
	le.PutUint64(b[64:], uint64(s.SegmentSize))
	le.PutUint64(b[72:], uint64(s.Ballast))
	seal(b)
}

func decodeSuperblock(b []byte) (superblock, error) {
	o, err := openBlock("superblock", b, kindSuper)
	if err != nil {
		return superblock{}, err
	}
	s := superblock{owner: o, SegmentSize: int64(le.Uint64(b[64:])), Ballast: int64(le.Uint64(b[72:]))}
	if s.SegmentSize < minSegment || s.SegmentSize > 1<<40 || s.SegmentSize%headerSize != 0 || s.Ballast < 0 {
		return superblock{}, corrupt("superblock: read segment size %d and ballast %d", s.SegmentSize, s.Ballast)
	}
	return s, nil
}

// segmentHeader is the first block of a segment. The generation is random: a record that does not carry it was not
// written into this segment, whatever bytes a client had us store.
type segmentHeader struct {
	owner
	Generation ident.ID
	Number     uint64
	Size       int64
}

func (s *segmentHeader) encode(b []byte) {
	clear(b)
	putPrefix(b, kindSegment, 0, s.owner)
	copy(b[64:], s.Generation[:])
	le.PutUint64(b[80:], s.Number)
	le.PutUint64(b[88:], uint64(s.Size))
	seal(b)
}

func decodeSegmentHeader(b []byte) (segmentHeader, error) {
	o, err := openBlock("segment header", b, kindSegment)
	if err != nil {
		return segmentHeader{}, err
	}
	s := segmentHeader{owner: o, Number: le.Uint64(b[80:]), Size: int64(le.Uint64(b[88:]))}
	copy(s.Generation[:], b[64:])
	if s.Size < deleteSegment || s.Size > 1<<40 {
		return segmentHeader{}, corrupt("segment header: read a size of %d", s.Size)
	}
	return s, nil
}

const (
	tombstoneAt = 104
	keySize     = 17
	// maxTombstone is the shards that one tombstone record takes back.
	maxTombstone = (headerSize - 4 - tombstoneAt) / keySize
)

// tombstone takes shards back that earlier records (or files) made.
type tombstone struct {
	owner
	Generation ident.ID
	Segment    uint64
	Offset     uint64
	Keys       []rowKey
}

func (t *tombstone) encode(b []byte) {
	clear(b)
	putPrefix(b, kindTombstone, 0, t.owner)
	copy(b[64:], t.Generation[:])
	le.PutUint64(b[80:], t.Segment)
	le.PutUint64(b[88:], t.Offset)
	le.PutUint16(b[96:], uint16(len(t.Keys)))
	for i, k := range t.Keys {
		copy(b[tombstoneAt+keySize*i:], k[:])
	}
	seal(b)
}

func decodeTombstone(b []byte) (tombstone, error) {
	o, err := openBlock("tombstone", b, kindTombstone)
	if err != nil {
		return tombstone{}, err
	}
	t := tombstone{owner: o, Segment: le.Uint64(b[80:]), Offset: le.Uint64(b[88:])}
	copy(t.Generation[:], b[64:])
	n := int(le.Uint16(b[96:]))
	if n > maxTombstone || len(b) != headerSize {
		return tombstone{}, corrupt("tombstone: read %d shards in %d bytes, expected at most %d", n, len(b), maxTombstone)
	}
	t.Keys = make([]rowKey, n)
	for i := range t.Keys {
		copy(t.Keys[i][:], b[tombstoneAt+keySize*i:])
	}
	return t, nil
}
