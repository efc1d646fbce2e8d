package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"objstore/internal/oerr"
)

// Protocol names, negotiated by ALPN: which protocol a TLS connection speaks, and its version.
const (
	ALPNRPC   = "objstore-rpc/1"   // calls between members
	ALPNShard = "objstore-shard/1" // shard/tcp
	ALPNJoin  = "objstore-join/1"  // calls without a client certificate: Join only
)

// preamble is what a client sends before its first frame: magic, version, reserved.
const preamble = "OBJR\x01\x00\x00\x00"

// Frame kinds. Values are part of the wire format: append, never reuse.
const (
	kindRequest byte = 1
	kindOneWay  byte = 2
	kindReply   byte = 3
	kindError   byte = 4
)

// Limits of the format, in bytes.
const (
	headerSize      = 20
	DefaultMaxFrame = 8 << 20 // payload; a log entry is at most 1 MiB, a Raft batch or snapshot chunk stays below this
	joinMaxFrame    = 64 << 10
	maxErrorText    = 1 << 10
)

// header precedes each payload. All integers are little-endian.
type header struct {
	length   uint32 // bytes of payload
	kind     byte
	method   Method
	id       uint64 // chosen by the caller, returned in the answer; 0 for one-way
	deadline uint32 // milliseconds that remain; requests only
}

func (h header) put(b []byte) {
	_ = b[headerSize-1]
	binary.LittleEndian.PutUint32(b, h.length)
	b[4], b[5] = h.kind, 0
	binary.LittleEndian.PutUint16(b[6:], uint16(h.method))
	binary.LittleEndian.PutUint64(b[8:], h.id)
	binary.LittleEndian.PutUint32(b[16:], h.deadline)
}

// errGarbage marks what a correct peer never sends. The connection is closed: what follows has no meaning.
var errGarbage = errors.New("not a frame")

func parseHeader(b []byte, maxFrame int) (header, error) {
	_ = b[headerSize-1]
	h := header{
		length:   binary.LittleEndian.Uint32(b),
		kind:     b[4],
		method:   Method(binary.LittleEndian.Uint16(b[6:])),
		id:       binary.LittleEndian.Uint64(b[8:]),
		deadline: binary.LittleEndian.Uint32(b[16:]),
	}
	switch {
	case h.kind < kindRequest || h.kind > kindError:
		return h, fmt.Errorf("%w: read kind %d, expected 1 to 4", errGarbage, h.kind)
	case b[5] != 0:
		return h, fmt.Errorf("%w: read %d in the reserved byte, expected 0", errGarbage, b[5])
	case int64(h.length) > int64(maxFrame):
		return h, fmt.Errorf("%w: read payload length %d, expected at most %d", errGarbage, h.length, maxFrame)
	case h.kind == kindRequest && h.deadline == 0:
		return h, fmt.Errorf("%w: request without a deadline", errGarbage)
	case h.kind != kindRequest && h.deadline != 0:
		return h, fmt.Errorf("%w: kind %d with a deadline", errGarbage, h.kind)
	case (h.kind == kindOneWay) != (h.id == 0):
		return h, fmt.Errorf("%w: kind %d with request id %d", errGarbage, h.kind, h.id)
	case h.kind == kindError && h.length < 2:
		return h, fmt.Errorf("%w: error of %d bytes, expected at least 2", errGarbage, h.length)
	}
	return h, nil
}

// readHeader reads the next header. io.EOF means the peer closed between frames.
func readHeader(br *bufio.Reader, maxFrame int) (header, error) {
	b, err := br.Peek(headerSize)
	if err != nil {
		if len(b) > 0 && err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return header{}, err
	}
	h, err := parseHeader(b, maxFrame)
	if err == nil {
		br.Discard(headerSize) // cannot fail: the bytes were peeked
	}
	return h, err
}

// flagCorrupt in an error says that some error in the far side's chain was marked Corrupt.
const flagCorrupt byte = 1

// AppendError appends the wire form of err: kind, flags, text. Shard connections use it, too.
func AppendError(dst []byte, err error) []byte {
	var flags byte
	if oerr.IsCorrupt(err) {
		flags |= flagCorrupt
	}
	dst = append(dst, byte(oerr.KindOf(err)), flags)
	text := err.Error()
	return append(dst, text[:min(len(text), maxErrorText)]...)
}

// ParseError reads what AppendError wrote. A kind this version does not know stays as it is: a newer peer's.
func ParseError(op string, b []byte) error {
	if len(b) < 2 {
		return oerr.Errorf(op, oerr.Internal, "read an error of %d bytes, expected at least 2", len(b))
	}
	kind, cause := oerr.Kind(b[0]), errors.New(string(b[2:min(len(b), 2+maxErrorText)]))
	if b[1]&flagCorrupt != 0 && kind != oerr.Corrupt {
		return oerr.E(op, kind, oerr.E(op, oerr.Corrupt, cause))
	}
	return oerr.E(op, kind, cause)
}
