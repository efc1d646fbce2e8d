package metadata

import (
	"encoding/binary"
	"math"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// The encoding of everything this package writes: unsigned varints in their shortest form, 16-byte identifiers,
// strings with a varint length, booleans as one byte. It is canonical: what decodes encodes to the same bytes again
// (docs/formats/metadata.md).

func appendStr(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBytes(b, s []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendInt(b []byte, v int64) []byte { return binary.AppendUvarint(b, uint64(v)) }

// dec reads an encoding. The first problem sticks; every read after it returns zero. Strings are parts of one copy of
// the input, so that a listing of a thousand keys costs one allocation for all its strings.
type dec struct {
	op   string
	kind oerr.Kind // of what is wrong: Corrupt for stored rows, InvalidArgument for what somebody sent
	b    []byte
	s    string
	pos  int
	err  error
}

func newDec(op string, kind oerr.Kind, b []byte) *dec {
	return &dec{op: op, kind: kind, b: b, s: string(b)}
}

func (d *dec) failf(format string, args ...any) {
	if d.err == nil {
		d.err = oerr.Errorf(d.op, d.kind, format, args...)
		d.pos = len(d.b)
	}
}

func (d *dec) left() int { return len(d.b) - d.pos }

// take returns the next n bytes of the input itself.
func (d *dec) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > d.left() {
		d.failf("at byte %d: read %d bytes, expected %d", d.pos, d.left(), n)
		return nil
	}
	d.pos += n
	return d.b[d.pos-n : d.pos : d.pos]
}

func (d *dec) u8() uint8 {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *dec) uv() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b[d.pos:])
	if n <= 0 || n > 1 && d.b[d.pos+n-1] == 0 {
		d.failf("at byte %d: no varint in its shortest form", d.pos)
		return 0
	}
	d.pos += n
	return v
}

// num reads a varint that must not exceed limit.
func (d *dec) num(limit uint64) uint64 {
	at, v := d.pos, d.uv()
	if v > limit {
		d.failf("at byte %d: read number %d, expected at most %d", at, v, limit)
		return 0
	}
	return v
}

func (d *dec) int() int64     { return int64(d.uv()) }
func (d *dec) u16() uint16    { return uint16(d.num(math.MaxUint16)) }
func (d *dec) u32() uint32    { return uint32(d.num(math.MaxUint32)) }
func (d *dec) byteNum() uint8 { return uint8(d.num(math.MaxUint8)) }

func (d *dec) bool() bool {
	at, v := d.pos, d.u8()
	if v > 1 {
		d.failf("at byte %d: read %d, expected 0 or 1", at, v)
	}
	return v == 1
}

func (d *dec) u64() uint64 {
	if p := d.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func (d *dec) id() (id ident.ID) {
	copy(id[:], d.take(len(id)))
	return id
}

func (d *dec) str() string {
	n := d.num(uint64(d.left()))
	if d.take(int(n)) == nil {
		return ""
	}
	return d.s[d.pos-int(n) : d.pos]
}

// bytes returns a copy, nil when empty.
func (d *dec) bytes() []byte {
	if s := d.str(); s != "" {
		return []byte(s)
	}
	return nil
}

// count reads the number of elements that follow. Each takes at least size bytes, so a number that the input cannot
// hold is refused before anything is allocated for it.
func (d *dec) count(size int) int {
	at, n := d.pos, d.uv()
	if n > uint64(d.left()/size) {
		d.failf("at byte %d: read a count of %d, expected at most %d", at, n, d.left()/size)
		return 0
	}
	return int(n)
}

func (d *dec) version(expected byte) {
	if v := d.u8(); v != expected {
		d.failf("read format version %d, expected %d", v, expected)
	}
}

// end returns the first problem; bytes left over are one.
func (d *dec) end() error {
	if d.err == nil && d.left() > 0 {
		d.failf("at byte %d: %d bytes left over, expected none", d.pos, d.left())
	}
	return d.err
}

// list reads a count and that many elements; nil when there are none.
func list[T any](d *dec, size int, read func(*dec) T) []T {
	n := d.count(size)
	if n == 0 {
		return nil
	}
	out := make([]T, n)
	for i := range out {
		if out[i] = read(d); d.err != nil {
			return nil
		}
	}
	return out
}

func appendList[T any](b []byte, l []T, put func([]byte, *T) []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(l)))
	for i := range l {
		b = put(b, &l[i])
	}
	return b
}
