package erasure

import (
	"bytes"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// knownAnswer is the xxh64 of the parity of SelfTest's input.
type knownAnswer struct {
	p   Profile
	sum uint64
}

// selfTestSize is the length of the cells SelfTest encodes, in bytes: odd, so that both the vector code and its tail run.
const selfTestSize = 4<<10 + 13

// SelfTest encodes a fixed input with every default profile, compares the parity with recorded answers and rebuilds
// each single and each full loss of m cells. It takes a few milliseconds; a node runs it before it serves, because a
// codec that is wrong on this CPU destroys data silently.
func SelfTest() error {
	for _, a := range knownAnswers() {
		if err := selfTest(a); err != nil {
			return fmt.Errorf("erasure: self-test of %s: %w", a.p, err)
		}
	}
	return nil
}

func knownAnswers() []knownAnswer {
	return []knownAnswer{
		{Profile{1, 0}, 0xef46db3751d8e999},
		{Profile{1, 1}, 0x289a83abbc8e29bc},
		{Profile{1, 2}, 0x38d92ba6736def32},
		{Profile{2, 1}, 0x450ec729583edf45},
		{Profile{2, 2}, 0x0771483e7833c62a},
		{Profile{3, 2}, 0xf1e43d9f3d44d489},
		{Profile{4, 2}, 0x3b90e53017de1ba0},
		{Profile{5, 3}, 0x8eee4a394d65a69e},
		{Profile{8, 4}, 0xb4e1954dcca6ccb3},
	}
}

func selfTest(a knownAnswer) error {
	c, err := NewCodec(a.p)
	if err != nil {
		return err
	}
	cells := selfTestCells(a.p)
	if err := c.Encode(cells); err != nil {
		return err
	}
	if sum := parityHash(a.p, cells); sum != a.sum {
		return fmt.Errorf("parity hash %#016x, expected %#016x", sum, a.sum)
	}
	for first := range cells {
		for lost := 1; lost <= int(a.p.M); lost++ {
			if err := selfTestLoss(c, cells, first, lost); err != nil {
				return err
			}
		}
	}
	return nil
}

// selfTestLoss drops the cells first, first+1, … (lost of them, around the end) and rebuilds them.
func selfTestLoss(c *Codec, cells [][]byte, first, lost int) error {
	got, want := make([][]byte, len(cells)), make([]bool, len(cells))
	copy(got, cells)
	for j := range lost {
		i := (first + j) % len(cells)
		got[i], want[i] = make([]byte, 0, selfTestSize), true
	}
	if err := c.Reconstruct(got, want); err != nil {
		return err
	}
	for i := range cells {
		if !bytes.Equal(got[i], cells[i]) {
			return fmt.Errorf("cell %d rebuilt wrong after the loss of %d from %d", i, lost, first)
		}
	}
	return nil
}

// selfTestCells makes the input: a linear congruential sequence, the same everywhere.
func selfTestCells(p Profile) [][]byte {
	cells := make([][]byte, p.N())
	x := uint32(1)
	for i := range cells {
		cells[i] = make([]byte, selfTestSize)
		for j := range cells[i] {
			x = x*1664525 + 1013904223 // Numerical Recipes
			cells[i][j] = byte(x >> 24)
		}
	}
	return cells
}

func parityHash(p Profile, cells [][]byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	for _, cell := range cells[p.K:] {
		d.Write(cell)
	}
	return d.Sum64()
}
