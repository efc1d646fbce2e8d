package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// sizeUnits from the largest down, so that the longest suffix is tried first.
func sizeUnits() []sizeUnit {
	return []sizeUnit{{"TiB", tib}, {"GiB", gib}, {"MiB", mib}, {"KiB", kib}, {"B", 1}}
}

type sizeUnit struct {
	suffix string
	bytes  int64
}

// ParseSize reads a number of bytes: digits, with KiB, MiB, GiB or TiB (powers of 1024) or B or nothing behind.
// Anything else is refused, decimal units among it: nobody should have to guess what "64M" means.
func ParseSize(s string) (int64, error) {
	digits, scale := s, int64(1)
	for _, u := range sizeUnits() {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, scale = rest, u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || digits == "" || digits[0] == '+' {
		return 0, fmt.Errorf("size %q: expected digits and one of B, KiB, MiB, GiB, TiB", s)
	}
	if n > uint64(math.MaxInt64/scale) {
		return 0, fmt.Errorf("size %q: larger than %d bytes", s, int64(math.MaxInt64))
	}
	return int64(n) * scale, nil
}

// FormatSize writes n in the largest unit that divides it, in the form that ParseSize reads.
func FormatSize(n int64) string {
	for _, u := range sizeUnits() {
		if n != 0 && n%u.bytes == 0 && u.bytes > 1 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
