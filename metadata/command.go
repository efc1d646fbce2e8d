package metadata

import (
	"encoding/binary"

	"objstore/internal/oerr"
)

// commandVersion is the first byte of every command. It is the version of apply's behaviour, too: a change of what
// apply does to any row gets a new number, and a binary that does not know an entry's number stops the replica instead
// of guessing (PROTOCOLS A).
const commandVersion = 1

// nowOffset is where Stamp finds Now: after version and op.
const nowOffset = 2

const (
	commandOp = "metadata.command"
	minHeader = nowOffset + 8 // bytes
)

// Append encodes c: version, op, Now (8 bytes big-endian, at a fixed place for Stamp), body, then what all commands
// have, then what Op names.
func (c *Command) Append(b []byte) []byte {
	b = append(b, commandVersion, byte(c.Op))
	b = binary.BigEndian.AppendUint64(b, uint64(c.Now))
	body := c.Body
	if c.Op != OpPut {
		body = nil
	}
	b = appendBytes(b, body)
	b = append(b, c.RequestID[:]...)
	b = binary.AppendUvarint(b, c.FirstIndex)
	b = append(b, c.Bucket[:]...)
	b = binary.AppendUvarint(b, c.Generation)
	b = binary.AppendUvarint(b, c.Epoch)
	b = appendStr(b, c.Key)
	return c.appendOp(b)
}

func (c *Command) appendOp(b []byte) []byte {
	switch c.Op {
	case OpCreateSpan:
		b = appendSpan(b, orZero(c.Span))
	case OpSetMinEpoch:
		b = binary.AppendUvarint(b, c.MinEpoch)
	case OpPut:
		b = appendVersion(b, orZero(c.Version))
		b = appendPrecondition(b, &c.Precondition)
	case OpDelete:
		b = appendPrecondition(b, &c.Precondition)
	case OpCreateUpload:
		b = appendUpload(b, orZero(c.Upload))
	case OpPutPart:
		b = append(b, c.UploadID[:]...)
		b = appendPart(b, orZero(c.Part))
	case OpCompleteUpload:
		b = append(b, c.UploadID[:]...)
		b = append(b, orZero(c.Version).ID[:]...)
		b = appendList(b, c.Complete, appendCompletePart)
		b = appendPrecondition(b, &c.Precondition)
		b = appendInt(b, c.MinPartSize)
		b = appendList(b, c.Checksums, appendChecksum)
		b = appendStr(b, c.ETag)
	case OpAbortUpload:
		b = append(b, c.UploadID[:]...)
	case OpLanded:
		b = appendList(b, c.Landings, appendLanding)
	case OpReportBad:
		b = appendList(b, c.Reports, appendReport)
	case OpRepairDone:
		b = appendList(b, c.Repairs, appendOutcome)
	case OpGarbageDone:
		b = appendList(b, c.Blobs, appendID)
	case OpAbandon:
		b = appendList(b, c.Blobs, appendID)
		b = appendList(b, c.Abandoned, appendBlob)
	}
	return b
}

func orZero[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}

// DecodeCommand reads what Append wrote. Body is part of b itself; everything else is a copy. The error is
// InvalidArgument.
func DecodeCommand(b []byte) (*Command, error) {
	if len(b) > MaxCommandSize {
		return nil, oerr.Errorf(commandOp, oerr.InvalidArgument, "read a command of %d bytes, expected at most %d", len(b), MaxCommandSize)
	}
	if len(b) < minHeader {
		return nil, oerr.Errorf(commandOp, oerr.InvalidArgument, "read a command of %d bytes, expected at least %d", len(b), minHeader)
	}
	if b[0] != commandVersion {
		return nil, oerr.Errorf(commandOp, oerr.InvalidArgument, "read command version %d, expected %d", b[0], commandVersion)
	}
	c := &Command{Op: Op(b[1]), Now: int64(binary.BigEndian.Uint64(b[nowOffset:]))}
	// The body comes before all strings, so that their one copy does not hold it a second time.
	head := dec{op: commandOp, kind: oerr.InvalidArgument, b: b, pos: minHeader}
	n := head.num(uint64(head.left()))
	if body := head.take(int(n)); len(body) > 0 {
		c.Body = body
	}
	if head.err != nil {
		return nil, head.err
	}
	if len(c.Body) > 0 && c.Op != OpPut {
		return nil, oerr.Errorf(commandOp, oerr.InvalidArgument, "read a body of %d bytes with op %d, expected none", n, c.Op)
	}
	d := newDec(commandOp, oerr.InvalidArgument, b[head.pos:])
	c.RequestID = d.id()
	c.FirstIndex = d.uv()
	c.Bucket = d.id()
	c.Generation = d.uv()
	c.Epoch = d.uv()
	c.Key = d.str()
	c.readOp(d)
	if err := d.end(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Command) readOp(d *dec) {
	switch c.Op {
	case OpCreateSpan:
		s := readSpan(d)
		c.Span = &s
	case OpSealSpan, OpDropSpan:
	case OpSetMinEpoch:
		c.MinEpoch = d.uv()
	case OpPut:
		v := readVersion(d)
		c.Version = &v
		c.Precondition = readPrecondition(d)
	case OpDelete:
		c.Precondition = readPrecondition(d)
	case OpCreateUpload:
		u := readUpload(d)
		c.Upload = &u
	case OpPutPart:
		c.UploadID = d.id()
		p := readPart(d)
		c.Part = &p
	case OpCompleteUpload:
		c.UploadID = d.id()
		c.Version = &Version{ID: d.id()}
		c.Complete = list(d, 3, readCompletePart)
		c.Precondition = readPrecondition(d)
		c.MinPartSize = d.int()
		c.Checksums = list(d, minChecksum, readChecksum)
		c.ETag = d.str()
	case OpAbortUpload:
		c.UploadID = d.id()
	case OpLanded:
		c.Landings = list(d, minLanding, readLanding)
	case OpReportBad:
		c.Reports = list(d, minReport, readReport)
	case OpRepairDone:
		c.Repairs = list(d, minOutcome, readOutcome)
	case OpGarbageDone:
		c.Blobs = list(d, minID, readID)
	case OpAbandon:
		c.Blobs = list(d, minID, readID)
		c.Abandoned = list(d, minBlob, readBlob)
	default:
		d.failf("read op %d, expected one of version %d", c.Op, commandVersion)
	}
}
