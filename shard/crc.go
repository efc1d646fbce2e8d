package shard

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/cespare/xxhash/v2"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// castagnoli is read-only after initialisation; hash/crc32 uses the SSE4.2 or ARMv8 instruction for it
// (31 GB/s for each core on the development machine).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Seed is the CRC state that block number block of shard (blob, index) starts from, so that a block that is right in
// itself but stands in the wrong place, or belongs to another blob, does not pass.
func Seed(blob ident.ID, index uint8, block uint64) uint32 {
	var b [25]byte
	copy(b[:16], blob[:])
	b[16] = index
	binary.LittleEndian.PutUint64(b[17:], block)
	return crc32.Checksum(b[:], castagnoli)
}

// BlockCRC returns the checksum of one block.
func BlockCRC(blob ident.ID, index uint8, block uint64, data []byte) uint32 {
	return crc32.Update(Seed(blob, index, block), castagnoli, data)
}

// Blocks returns the number of blocks in length bytes.
func Blocks(length uint64) int { return int((length + BlockSize - 1) / BlockSize) }

// AppendCRCs appends the CRCs of data's blocks to crcs; data begins at block number first.
func AppendCRCs(crcs []uint32, blob ident.ID, index uint8, first uint64, data []byte) []uint32 {
	for len(data) > 0 {
		n := min(len(data), BlockSize)
		crcs = append(crcs, BlockCRC(blob, index, first, data[:n]))
		data = data[n:]
		first++
	}
	return crcs
}

// CheckBlocks verifies data, which begins at block number first, against crcs. The error is marked Corrupt and names
// the first bad block.
func CheckBlocks(blob ident.ID, index uint8, first uint64, data []byte, crcs []uint32) error {
	if Blocks(uint64(len(data))) != len(crcs) {
		return oerr.Errorf("shard.check", oerr.Corrupt, "shard %s.%d: read %d checksums for %d bytes, expected %d",
			blob, index, len(crcs), len(data), Blocks(uint64(len(data))))
	}
	for i := range crcs {
		n := min(len(data), BlockSize)
		if got := BlockCRC(blob, index, first+uint64(i), data[:n]); got != crcs[i] {
			return oerr.E("shard.check", oerr.Corrupt, fmt.Errorf("shard %s.%d block %d: checksum %08x, expected %08x",
				blob, index, first+uint64(i), got, crcs[i]))
		}
		data = data[n:]
	}
	return nil
}

// Digest identifies a whole shard: xxh64 over its CRC table, little-endian. The commit records it.
func Digest(crcs []uint32) uint64 {
	var d xxhash.Digest
	d.Reset()
	var b [4]byte
	for _, c := range crcs {
		binary.LittleEndian.PutUint32(b[:], c)
		d.Write(b[:])
	}
	return d.Sum64()
}
