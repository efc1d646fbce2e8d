package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"objstore/shard"
)

// Frame kinds. Values are part of the wire format: append, never reuse.
const (
	kindCreate byte = 1 // meta: spec
	kindData   byte = 2 // meta: block CRCs; data
	kindCommit byte = 3
	kindAbort  byte = 4
	kindRead   byte = 5 // meta: ref, offset, length
	kindStat   byte = 6 // meta: ref, verify
	kindDelete byte = 7 // meta: refs
	kindList   byte = 8 // meta: drive, after, index, max

	kindAck     byte = 16 // meta: drive, incarnation, digest
	kindCells   byte = 17 // meta: block CRCs; data
	kindInfo    byte = 18 // meta: info
	kindDeleted byte = 19 // meta: one error or none for each ref
	kindListed  byte = 20 // meta: inventory rows
	kindError   byte = 21 // meta: error as wire.AppendError writes it
)

// Limits of the format.
const (
	headerSize   = 24
	maxData      = 1 << 20  // bytes of cells in one frame
	maxMeta      = 64 << 10 // bytes
	maxRefs      = 1024     // in one delete frame
	maxRows      = 1024     // in one list answer
	maxKey       = 1024     // bytes of an object key
	maxPath      = 4096     // bytes
	maxDetail    = 1024     // bytes
	maxDeleteErr = 32       // bytes of text for each failed ref, so that a full answer fits maxMeta
)

// errFrame marks what a correct peer never sends. The connection is closed.
var errFrame = errors.New("not a shard frame")

// header precedes each frame's meta and data. All integers are little-endian; the CRC covers header and meta, because
// a plaintext connection has nothing else for them (cells have their own).
type header struct {
	kind     byte
	meta     uint32 // bytes
	data     uint32 // bytes
	deadline uint32 // milliseconds that remain, 0 none; requests only
	crc      uint32 // CRC32C of the 20 bytes before it and of meta
}

// castagnoli is read-only after initialisation.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openFrame makes room for a header at the end of dst; the meta is appended behind it, then sealFrame fills it in.
func openFrame(dst []byte) []byte {
	var h [headerSize]byte
	return append(dst, h[:]...)
}

// sealFrame writes the header at b[at:]; all that follows it in b is the meta. The caller sends data bytes of cells
// behind that.
func sealFrame(b []byte, at int, kind byte, deadlineMS uint32, data int) {
	h := b[at:]
	h[0] = kind
	binary.LittleEndian.PutUint32(h[4:], uint32(len(h)-headerSize))
	binary.LittleEndian.PutUint32(h[8:], uint32(data))
	binary.LittleEndian.PutUint32(h[12:], deadlineMS)
	crc := crc32.Update(crc32.Checksum(h[:20], castagnoli), castagnoli, h[headerSize:])
	binary.LittleEndian.PutUint32(h[20:], crc)
}

// parseHeader checks everything but the CRC, which needs the meta (checkMeta).
func parseHeader(b []byte) (header, error) {
	_ = b[headerSize-1]
	h := header{
		kind:     b[0],
		meta:     binary.LittleEndian.Uint32(b[4:]),
		data:     binary.LittleEndian.Uint32(b[8:]),
		deadline: binary.LittleEndian.Uint32(b[12:]),
		crc:      binary.LittleEndian.Uint32(b[20:]),
	}
	carries := h.kind == kindData || h.kind == kindCells
	switch {
	case !(h.kind >= kindCreate && h.kind <= kindList || h.kind >= kindAck && h.kind <= kindError):
		return h, fmt.Errorf("%w: read kind %d", errFrame, h.kind)
	case b[1] != 0 || b[2] != 0 || b[3] != 0 || binary.LittleEndian.Uint32(b[16:]) != 0:
		return h, fmt.Errorf("%w: reserved bytes are not zero", errFrame)
	case h.meta > maxMeta:
		return h, fmt.Errorf("%w: read meta length %d, expected at most %d", errFrame, h.meta, maxMeta)
	case h.data > maxData:
		return h, fmt.Errorf("%w: read data length %d, expected at most %d", errFrame, h.data, maxData)
	case carries != (h.data > 0):
		return h, fmt.Errorf("%w: kind %d with %d bytes of data", errFrame, h.kind, h.data)
	case carries && int(h.meta) != 4*shard.Blocks(uint64(h.data)):
		return h, fmt.Errorf("%w: %d bytes of checksums for %d bytes of data, expected %d", errFrame, h.meta, h.data, 4*shard.Blocks(uint64(h.data)))
	case h.kind >= kindAck && h.deadline != 0:
		return h, fmt.Errorf("%w: an answer with a deadline", errFrame)
	}
	return h, nil
}

func checkMeta(b, meta []byte, want uint32) error {
	if got := crc32.Update(crc32.Checksum(b[:20], castagnoli), castagnoli, meta); got != want {
		return fmt.Errorf("%w: header checksum %08x, expected %08x", errFrame, got, want)
	}
	return nil
}
