package tcp

import (
	"encoding/binary"
	"fmt"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/shard"
)

var le = binary.LittleEndian

// dec reads fields off the front of b; the first short read or bad value sticks.
type dec struct {
	b   []byte
	err error
}

func (d *dec) take(n int) []byte {
	if d.err != nil || len(d.b) < n {
		d.fail("%d bytes are left, expected at least %d", len(d.b), n)
		return make([]byte, n) // n is a constant or was checked by the caller
	}
	x := d.b[:n]
	d.b = d.b[n:]
	return x
}

func (d *dec) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errFrame, fmt.Sprintf(format, args...))
	}
}

func (d *dec) u8() uint8   { return d.take(1)[0] }
func (d *dec) u16() uint16 { return le.Uint16(d.take(2)) }
func (d *dec) u32() uint32 { return le.Uint32(d.take(4)) }
func (d *dec) u64() uint64 { return le.Uint64(d.take(8)) }
func (d *dec) id() ident.ID {
	return ident.ID(d.take(16))
}

func (d *dec) bool() bool {
	v := d.u8()
	if v > 1 {
		d.fail("read %d for a truth value", v)
	}
	return v == 1
}

func (d *dec) str(max int) string {
	n := int(d.u16())
	if n > max {
		d.fail("read a text of %d bytes, expected at most %d", n, max)
		return ""
	}
	return string(d.take(n))
}

// end reports the first error, or bytes left over.
func (d *dec) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes are left over", len(d.b))
	}
	return d.err
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendStr(b []byte, s string, max int) []byte {
	s = s[:min(len(s), max)]
	return append(le.AppendUint16(b, uint16(len(s))), s...)
}

func appendRef(b []byte, r shard.Ref) []byte {
	b = le.AppendUint32(b, uint32(r.Drive))
	b = le.AppendUint32(b, uint32(r.Incarnation))
	b = le.AppendUint64(b, r.Epoch)
	b = append(b, r.Blob[:]...)
	return append(b, r.Index)
}

func (d *dec) ref() shard.Ref {
	return shard.Ref{Drive: ident.Drive(d.u32()), Incarnation: ident.Incarnation(d.u32()), Epoch: d.u64(), Blob: d.id(), Index: d.u8()}
}

func appendSpec(b []byte, s *shard.Spec) []byte {
	b = appendRef(b, s.Ref)
	b = append(b, s.K, s.M)
	b = le.AppendUint32(b, s.CellSize)
	b = le.AppendUint64(b, s.Length)
	b = le.AppendUint64(b, s.BodyLen)
	b = append(b, s.Bucket[:]...)
	b = append(b, s.Version[:]...)
	b = le.AppendUint16(b, s.Part)
	b = le.AppendUint32(b, uint32(s.Writer.Node))
	b = append(b, s.Writer.StartID[:]...)
	b = le.AppendUint64(b, s.Writer.Put)
	b = le.AppendUint32(b, s.Attempt)
	b = appendBool(b, s.Repair)
	return appendStr(b, s.Key, maxKey)
}

func (d *dec) spec() shard.Spec {
	return shard.Spec{Ref: d.ref(), K: d.u8(), M: d.u8(), CellSize: d.u32(), Length: d.u64(), BodyLen: d.u64(),
		Bucket: d.id(), Version: d.id(), Part: d.u16(),
		Writer:  shard.WriterID{Node: ident.Node(d.u32()), StartID: d.id(), Put: d.u64()},
		Attempt: d.u32(), Repair: d.bool(), Key: d.str(maxKey)}
}

func appendInfo(b []byte, i *shard.Info) []byte {
	b = appendSpec(b, &i.Spec)
	b = append(b, byte(i.State))
	b = le.AppendUint64(b, i.Digest)
	b = le.AppendUint64(b, i.Offset)
	b = le.AppendUint64(b, i.Size)
	b = appendStr(b, i.Path, maxPath)
	return appendStr(b, i.Detail, maxDetail)
}

func (d *dec) state() shard.State {
	s := shard.State(d.u8())
	if s > shard.StateWriting {
		d.fail("read shard state %d", s)
		return shard.StateUnknown
	}
	return s
}

func (d *dec) info() shard.Info {
	return shard.Info{Spec: d.spec(), State: d.state(), Digest: d.u64(), Offset: d.u64(), Size: d.u64(), Path: d.str(maxPath), Detail: d.str(maxDetail)}
}

// appendRow is an Info as List fills it.
func appendRow(b []byte, i *shard.Info) []byte {
	b = appendRef(b, i.Ref)
	b = append(b, byte(i.State))
	b = le.AppendUint64(b, i.Length)
	return le.AppendUint64(b, i.Digest)
}

func (d *dec) row() shard.Info {
	i := shard.Info{Spec: shard.Spec{Ref: d.ref()}, State: d.state()}
	i.Length, i.Digest = d.u64(), d.u64()
	return i
}

func appendRead(b []byte, r *shard.ReadRequest) []byte {
	return le.AppendUint64(le.AppendUint64(le.AppendUint64(appendRef(b, r.Ref), r.Offset), r.Length), r.Digest)
}

func (d *dec) read() shard.ReadRequest {
	r := shard.ReadRequest{Ref: d.ref(), Offset: d.u64(), Length: d.u64(), Digest: d.u64()}
	if r.Length == 0 || r.Offset%shard.BlockSize != 0 || r.Offset+r.Length < r.Offset {
		d.fail("read of %d bytes at %d", r.Length, r.Offset)
	}
	return r
}

func appendAck(b []byte, a shard.Ack) []byte {
	return le.AppendUint64(le.AppendUint32(le.AppendUint32(b, uint32(a.Drive)), uint32(a.Incarnation)), a.Digest)
}

func (d *dec) ack() shard.Ack {
	return shard.Ack{Drive: ident.Drive(d.u32()), Incarnation: ident.Incarnation(d.u32()), Digest: d.u64()}
}

func appendCRCs(b []byte, crcs []uint32) []byte {
	for _, c := range crcs {
		b = le.AppendUint32(b, c)
	}
	return b
}

// parseCRCs appends the checksums in meta, whose length parseHeader has checked.
func parseCRCs(crcs []uint32, meta []byte) []uint32 {
	for ; len(meta) >= 4; meta = meta[4:] {
		crcs = append(crcs, le.Uint32(meta))
	}
	return crcs
}

// appendErrors writes Delete's answers: 0 for success, else a length and the error.
func appendErrors(b []byte, errs []error) []byte {
	b = le.AppendUint16(b, uint16(len(errs)))
	for _, err := range errs {
		if err == nil {
			b = append(b, 0)
			continue
		}
		at := len(b)
		b = wire.AppendError(append(b, 0), err)
		b = b[:min(len(b), at+3+maxDeleteErr)]
		b[at] = byte(len(b) - at - 1)
	}
	return b
}

func (d *dec) errors(want int) []error {
	if n := int(d.u16()); n != want {
		d.fail("read %d answers, expected %d", n, want)
		return nil
	}
	errs := make([]error, want)
	for i := range errs {
		if n := int(d.u8()); n > 0 {
			errs[i] = wire.ParseError("shard.tcp.delete", d.take(n))
		}
	}
	return errs
}

// parseMeta runs f over the whole of meta.
func parseMeta[T any](meta []byte, f func(*dec) T) (T, error) {
	d := dec{b: meta}
	v := f(&d)
	return v, d.end()
}

// remoteError is the far side's answer: the connection is in order.
func remoteError(meta []byte) error { return wire.ParseError("shard.tcp", meta) }

// errorOf is err as it crosses: whatever carries the Corrupt marker crosses as Corrupt, because repair keys on it.
func errorOf(err error) error {
	if oerr.IsCorrupt(err) && !oerr.Is(err, oerr.Corrupt) {
		return oerr.E("shard.tcp", oerr.Corrupt, err)
	}
	return err
}

func appendError(b []byte, err error) []byte { return wire.AppendError(b, errorOf(err)) }
