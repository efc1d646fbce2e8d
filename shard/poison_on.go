//go:build invariants

package shard

// poison overwrites a released buffer, so that a use after release shows as a checksum error.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}
