package store

import (
	"objstore/internal/ident"
	"objstore/shard"
)

const footerTableAt = 112

// footer is the end mark of a shard file. Without a valid one the file was never written.
type footer struct {
	owner
	Blob    ident.ID
	Index   uint8
	Length  uint64
	Digest  uint64
	Stripes uint32
	CRCs    []uint32
}

// footerSize returns the bytes of the footer of a shard of this length.
func footerSize(length uint64) int {
	n := footerTableAt + 4*shard.Blocks(length) + 4
	return (n + headerSize - 1) / headerSize * headerSize
}

func fileSize(length uint64) int64 {
	return headerSize + int64(length) + int64(footerSize(length))
}

func stripes(length uint64, cell uint32) uint32 {
	return uint32((length + uint64(cell) - 1) / uint64(cell))
}

// encode fills b, footerSize(f.Length) long.
func (f *footer) encode(b []byte) {
	clear(b)
	putPrefix(b, kindFooter, 0, f.owner)
	copy(b[64:], f.Blob[:])
	b[80] = f.Index
	le.PutUint64(b[88:], f.Length)
	le.PutUint64(b[96:], f.Digest)
	le.PutUint32(b[104:], uint32(len(f.CRCs)))
	le.PutUint32(b[108:], f.Stripes)
	for i, c := range f.CRCs {
		le.PutUint32(b[footerTableAt+4*i:], c)
	}
	seal(b)
}

func decodeFooter(b []byte) (footer, error) {
	o, err := openBlock("shard footer", b, kindFooter)
	if err != nil {
		return footer{}, err
	}
	f := footer{owner: o, Index: b[80], Length: le.Uint64(b[88:]), Digest: le.Uint64(b[96:]), Stripes: le.Uint32(b[108:])}
	copy(f.Blob[:], b[64:])
	if f.Length > MaxLength || len(b) != footerSize(f.Length) {
		return footer{}, corrupt("shard footer: read a length of %d in %d bytes of footer", f.Length, len(b))
	}
	n := int(le.Uint32(b[104:]))
	if n != shard.Blocks(f.Length) {
		return footer{}, corrupt("shard footer: read %d checksums for %d bytes, expected %d", n, f.Length, shard.Blocks(f.Length))
	}
	f.CRCs = make([]uint32, n)
	for i := range f.CRCs {
		f.CRCs[i] = le.Uint32(b[footerTableAt+4*i:])
	}
	if d := shard.Digest(f.CRCs); d != f.Digest {
		return footer{}, corrupt("shard footer: read digest %016x, expected %016x", f.Digest, d)
	}
	return f, nil
}
