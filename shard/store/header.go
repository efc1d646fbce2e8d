package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

// Blocks written by this package all begin with the same 64 bytes and end with a CRC32C of everything before it; see
// docs/formats/shard.md.
const (
	magic         = "OBJSHARD"
	formatVersion = 1
	headerSize    = 4 << 10 // bytes of every block but a footer, and the unit of a footer
	prefixSize    = 64      // bytes common to all blocks

	kindSuper     = 1
	kindSegment   = 2
	kindRecord    = 3
	kindTombstone = 4
	kindFile      = 5
	kindFooter    = 6

	flagRepair = 1

	maxRecordCRCs = 16 // a record is shorter than shard.SegmentLimit
	crcTableAt    = 224
	keyAt         = crcTableAt + 4*maxRecordCRCs
)

var le = binary.LittleEndian

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // one shared table inside hash/crc32

// owner is what the prefix says: on which drive of which cluster a block was written.
type owner struct {
	Cluster     ident.ID
	UUID        ident.ID
	Drive       ident.Drive
	Incarnation ident.Incarnation
}

// header is the first block of a record or of a file.
type header struct {
	owner
	Kind uint8
	Spec shard.Spec

	// Records only: where the record was put, so that a copy of it elsewhere is not taken for one, and its checksums.
	Generation ident.ID
	Segment    uint64
	Offset     uint64
	Digest     uint64
	CRCs       []uint32
}

func putPrefix(b []byte, kind, flags uint8, o owner) {
	copy(b, magic)
	le.PutUint16(b[8:], formatVersion)
	b[10], b[11] = kind, flags
	le.PutUint32(b[12:], uint32(o.Drive))
	copy(b[16:], o.Cluster[:])
	copy(b[32:], o.UUID[:])
	le.PutUint32(b[48:], uint32(o.Incarnation))
	clear(b[52:prefixSize])
}

func seal(b []byte) {
	le.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli()))
}

// openBlock checks magic, version, kind and checksum.
func openBlock(what string, b []byte, kinds ...uint8) (owner, error) {
	if len(b) < headerSize || len(b)%headerSize != 0 {
		return owner{}, corrupt("%s: read %d bytes, expected a multiple of %d", what, len(b), headerSize)
	}
	if string(b[:8]) != magic {
		return owner{}, corrupt("%s: read magic %q, expected %q", what, b[:8], magic)
	}
	if got, want := le.Uint32(b[len(b)-4:]), crc32.Checksum(b[:len(b)-4], castagnoli()); got != want {
		return owner{}, corrupt("%s: read checksum %08x, expected %08x", what, got, want)
	}
	if v := le.Uint16(b[8:]); v != formatVersion {
		return owner{}, corrupt("%s: read format version %d, expected %d", what, v, formatVersion)
	}
	ok := false
	for _, k := range kinds {
		ok = ok || b[10] == k
	}
	if !ok {
		return owner{}, corrupt("%s: read block kind %d, expected %d", what, b[10], kinds)
	}
	o := owner{Drive: ident.Drive(le.Uint32(b[12:])), Incarnation: ident.Incarnation(le.Uint32(b[48:]))}
	copy(o.Cluster[:], b[16:])
	copy(o.UUID[:], b[32:])
	return o, nil
}

func corrupt(format string, args ...any) error {
	return oerr.E("store.decode", oerr.Corrupt, fmt.Errorf(format, args...))
}

// encode fills b, headerSize long.
func (h *header) encode(b []byte) {
	clear(b)
	s := &h.Spec
	var flags uint8
	if s.Repair {
		flags |= flagRepair
	}
	putPrefix(b, h.Kind, flags, h.owner)
	copy(b[64:], s.Blob[:])
	b[80], b[81], b[82] = s.Index, s.K, s.M
	le.PutUint32(b[84:], s.CellSize)
	le.PutUint64(b[88:], s.Length)
	le.PutUint64(b[96:], s.BodyLen)
	copy(b[104:], s.Bucket[:])
	copy(b[120:], s.Version[:])
	copy(b[136:], s.Writer.StartID[:])
	le.PutUint64(b[152:], s.Writer.Put)
	le.PutUint32(b[160:], uint32(s.Writer.Node))
	le.PutUint32(b[164:], s.Attempt)
	le.PutUint16(b[168:], s.Part)
	le.PutUint16(b[170:], uint16(len(s.Key)))
	le.PutUint16(b[172:], uint16(len(h.CRCs)))
	le.PutUint64(b[176:], s.Epoch)
	le.PutUint64(b[184:], h.Digest)
	copy(b[192:], h.Generation[:])
	le.PutUint64(b[208:], h.Segment)
	le.PutUint64(b[216:], h.Offset)
	for i, c := range h.CRCs {
		le.PutUint32(b[crcTableAt+4*i:], c)
	}
	copy(b[keyAt:], s.Key)
	seal(b)
}

func decodeHeader(b []byte) (header, error) {
	var h header
	o, err := openBlock("shard header", b, kindRecord, kindFile)
	if err != nil {
		return h, err
	}
	if len(b) != headerSize {
		return h, corrupt("shard header: read %d bytes, expected %d", len(b), headerSize)
	}
	h.owner, h.Kind = o, b[10]
	s := &h.Spec
	s.Drive, s.Incarnation = o.Drive, o.Incarnation
	s.Repair = b[11]&flagRepair != 0
	copy(s.Blob[:], b[64:])
	s.Index, s.K, s.M = b[80], b[81], b[82]
	s.CellSize = le.Uint32(b[84:])
	s.Length = le.Uint64(b[88:])
	s.BodyLen = le.Uint64(b[96:])
	copy(s.Bucket[:], b[104:])
	copy(s.Version[:], b[120:])
	copy(s.Writer.StartID[:], b[136:])
	s.Writer.Put = le.Uint64(b[152:])
	s.Writer.Node = ident.Node(le.Uint32(b[160:]))
	s.Attempt = le.Uint32(b[164:])
	s.Part = le.Uint16(b[168:])
	keyLen, crcs := int(le.Uint16(b[170:])), int(le.Uint16(b[172:]))
	s.Epoch = le.Uint64(b[176:])
	h.Digest = le.Uint64(b[184:])
	copy(h.Generation[:], b[192:])
	h.Segment = le.Uint64(b[208:])
	h.Offset = le.Uint64(b[216:])
	if keyLen > maxKeyLen {
		return header{}, corrupt("shard header: read a key of %d bytes, expected at most %d", keyLen, maxKeyLen)
	}
	s.Key = string(b[keyAt : keyAt+keyLen])
	if err := checkSpec(s); err != nil {
		return header{}, corrupt("shard header: %w", err)
	}
	want := 0
	if h.Kind == kindRecord {
		want = shard.Blocks(s.Length)
	}
	if crcs != want || want > maxRecordCRCs {
		return header{}, corrupt("shard header: read %d checksums for %d bytes, expected %d", crcs, s.Length, want)
	}
	for i := range crcs {
		h.CRCs = append(h.CRCs, le.Uint32(b[crcTableAt+4*i:]))
	}
	if d := shard.Digest(h.CRCs); h.Kind == kindRecord && d != h.Digest {
		return header{}, corrupt("shard header: read digest %016x, expected %016x", h.Digest, d)
	}
	return h, nil
}

// checkSpec is what a writer is refused for and a header is not believed with.
func checkSpec(s *shard.Spec) error {
	switch {
	case s.Length == 0 || s.Length%shard.Align != 0 || s.Length > MaxLength:
		return fmt.Errorf("shard length %d, expected a multiple of %d up to %d", s.Length, shard.Align, int64(MaxLength))
	case s.K == 0 || int(s.K)+int(s.M) > maxShards || s.Index >= s.K+s.M:
		return fmt.Errorf("shard %d of %d+%d, expected at most %d shards and an index among them", s.Index, s.K, s.M, maxShards)
	case s.CellSize == 0 || s.CellSize%shard.Align != 0:
		return fmt.Errorf("cell size %d, expected a multiple of %d", s.CellSize, shard.Align)
	case len(s.Key) > maxKeyLen:
		return fmt.Errorf("key of %d bytes, expected at most %d", len(s.Key), maxKeyLen)
	case s.Blob.IsZero():
		return fmt.Errorf("blob id is zero")
	}
	return nil
}
