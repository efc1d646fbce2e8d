//go:build invariants

package shard

import (
	"bytes"
	"testing"
)

func TestReleasedBuffersArePoisoned(t *testing.T) {
	p := NewPool(1 << 20)
	defer p.Close()
	b := get(t, p, 4096)
	clear(b.B)
	stale := b.mem
	b.Release()
	if !bytes.Equal(stale, bytes.Repeat([]byte{0xdb}, len(stale))) {
		t.Error("a released buffer still has what was in it")
	}
}
