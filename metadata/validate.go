package metadata

import (
	"math/bits"
	"strings"

	"objstore/internal/oerr"
)

// More limits, enforced in Validate.
const (
	MaxETag      = 128 // bytes
	MaxChecksum  = 64  // bytes of one value
	MaxChecksums = 5
	MaxETags     = 64      // in one precondition list
	MaxBatch     = 1000    // landings, reports, repair outcomes or blobs in one command or query
	MaxQueryText = 4 << 10 // bytes of prefix, delimiter and after
	MaxShards    = 32      // of one blob
	// maxPayload bounds the strings of one command, so that its encoding stays within MaxCommandSize.
	maxPayload = MaxCommandSize - 128<<10
)

func invalid(format string, args ...any) error {
	return oerr.Errorf("metadata.validate", oerr.InvalidArgument, format, args...)
}

// Validate checks the limits of this package and that Op has what it names. The error is InvalidArgument.
func (c *Command) Validate() error {
	if c.Op != OpRepairDone && c.Op != OpGarbageDone {
		switch {
		case c.RequestID.IsZero():
			return invalid("op %d: no request id", c.Op)
		case c.Bucket.IsZero():
			return invalid("op %d: no bucket", c.Op)
		}
	}
	if err := c.Precondition.validate(); err != nil {
		return err
	}
	switch c.Op {
	case OpPut, OpDelete, OpCreateUpload, OpPutPart, OpCompleteUpload, OpAbortUpload:
		if err := validKey(c.Key); err != nil {
			return err
		}
	default:
		if len(c.Key) > MaxKeyLen {
			return invalid("key of %d bytes, expected at most %d", len(c.Key), MaxKeyLen)
		}
	}
	return c.validateOp()
}

func (c *Command) validateOp() error {
	switch c.Op {
	case OpCreateSpan:
		return c.validateSpan()
	case OpSealSpan, OpDropSpan, OpSetMinEpoch, OpDelete:
		return nil
	case OpPut:
		return c.validatePut()
	case OpCreateUpload:
		return c.validateUpload()
	case OpPutPart:
		return c.validatePart()
	case OpCompleteUpload:
		return c.validateComplete()
	case OpAbortUpload:
		if c.UploadID.IsZero() {
			return invalid("abort: no upload id")
		}
		return nil
	case OpLanded, OpReportBad, OpRepairDone, OpGarbageDone, OpAbandon:
		return c.validateBatch()
	case OpDeleteVersion:
		return oerr.Errorf("metadata.validate", oerr.NotImplemented, "deleting a version: versioned buckets are not built")
	}
	return invalid("read op %d, expected 1 to %d", c.Op, OpAbandon)
}

func validKey(key string) error {
	if len(key) == 0 || len(key) > MaxKeyLen {
		return invalid("key of %d bytes, expected 1 to %d", len(key), MaxKeyLen)
	}
	return nil
}

func (c *Command) validateSpan() error {
	switch {
	case c.Span == nil || c.Span.Bucket != c.Bucket:
		return invalid("create span: no span, or one of another bucket")
	case len(c.Span.Start) > MaxKeyLen || len(c.Span.End) > MaxKeyLen:
		return invalid("create span: bounds of %d and %d bytes, expected at most %d", len(c.Span.Start), len(c.Span.End), MaxKeyLen)
	case c.Span.End != "" && c.Span.Start >= c.Span.End:
		return invalid("create span: start %q is not below end %q", c.Span.Start, c.Span.End)
	case c.Span.Sealed || c.Span.Seq != 0:
		return invalid("create span: sealed %t at sequence number %d, expected an open span at 0", c.Span.Sealed, c.Span.Seq)
	case c.Span.Versioning != 0:
		return oerr.Errorf("metadata.validate", oerr.NotImplemented, "create span: versioning %d is not built", c.Span.Versioning)
	}
	return nil
}

func (p *Precondition) validate() error {
	if len(p.IfMatch) > MaxETags || len(p.IfNoneMatch) > MaxETags {
		return invalid("precondition of %d and %d etags, expected at most %d", len(p.IfMatch), len(p.IfNoneMatch), MaxETags)
	}
	for _, l := range [2][]string{p.IfMatch, p.IfNoneMatch} {
		for _, e := range l {
			if len(e) > MaxETag {
				return invalid("precondition: etag of %d bytes, expected at most %d", len(e), MaxETag)
			}
		}
	}
	return nil
}

func validHeaders(headers []Pair) error {
	const meta = "x-amz-meta-"
	all, user := 0, 0
	for _, h := range headers {
		if h.Name == "" {
			return invalid("header without a name")
		}
		all += len(h.Name) + len(h.Value)
		if len(h.Name) >= len(meta) && strings.EqualFold(h.Name[:len(meta)], meta) {
			user += len(h.Name) - len(meta) + len(h.Value)
		}
	}
	if user > MaxUserMeta || all > MaxHeaders {
		return invalid("headers of %d bytes, user metadata of %d, expected at most %d and %d", all, user, MaxHeaders, MaxUserMeta)
	}
	return nil
}

func validChecksums(sums []Checksum) error {
	if len(sums) > MaxChecksums {
		return invalid("%d checksums, expected at most %d", len(sums), MaxChecksums)
	}
	for i := range sums {
		if err := sums[i].validate(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Checksum) validate() error {
	if s.Algorithm < 1 || s.Algorithm > 5 || len(s.Value) > MaxChecksum {
		return invalid("checksum of algorithm %d and %d bytes, expected 1 to 5 and at most %d", s.Algorithm, len(s.Value), MaxChecksum)
	}
	return nil
}

// validate checks a blob that is to be committed.
func (x *Blob) validate() error {
	if bits.OnesCount32(x.Missing) > int(x.M) {
		return invalid("blob %s: missing shards %#x, expected at most %d", x.ID, x.Missing, x.M)
	}
	return x.validShape()
}

func (x *Blob) validShape() error {
	n := int(x.K) + int(x.M)
	switch {
	case x.ID.IsZero():
		return invalid("blob without an id")
	case x.K == 0 || n > MaxShards:
		return invalid("blob %s: %d+%d shards, expected 1 to %d with at least one data shard", x.ID, x.K, x.M, MaxShards)
	case len(x.Digests) != n:
		return invalid("blob %s: %d digests, expected %d", x.ID, len(x.Digests), n)
	case uint64(x.Missing)>>n != 0:
		return invalid("blob %s: missing shards %#x, expected only the lowest %d", x.ID, x.Missing, n)
	case x.Size <= 0:
		return invalid("blob %s: body of %d bytes, expected more", x.ID, x.Size)
	}
	return nil
}

func (p *Part) validate() error {
	if p.Size < 0 || len(p.ETag) > MaxETag {
		return invalid("part %d: %d bytes with an etag of %d, expected no fewer than 0 and at most %d", p.Number, p.Size, len(p.ETag), MaxETag)
	}
	if p.Checksum != nil {
		if err := p.Checksum.validate(); err != nil {
			return err
		}
	}
	if p.Blob == nil {
		return nil
	}
	if p.Blob.Size != p.Size {
		return invalid("part %d: %d bytes in a blob of %d", p.Number, p.Size, p.Blob.Size)
	}
	return p.Blob.validate()
}

func (c *Command) validatePut() error {
	v := c.Version
	switch {
	case v == nil || v.ID.IsZero():
		return invalid("put: no version id")
	case v.Key != "" && v.Key != c.Key:
		return invalid("put: version of key %q under key %q", v.Key, c.Key)
	case v.DeleteMarker:
		return invalid("put: a delete marker")
	case len(v.ETag) > MaxETag:
		return invalid("put: etag of %d bytes, expected at most %d", len(v.ETag), MaxETag)
	case len(c.Body) > MaxInline:
		return invalid("put: inline body of %d bytes, expected at most %d", len(c.Body), MaxInline)
	case len(v.Parts) > 1:
		return invalid("put: %d parts, expected at most one", len(v.Parts))
	}
	if err := validHeaders(v.Headers); err != nil {
		return err
	}
	if err := validChecksums(v.Checksums); err != nil {
		return err
	}
	stored := int64(len(c.Body))
	for i := range v.Parts {
		p := &v.Parts[i]
		if p.Number != 0 {
			return invalid("put: part number %d, expected 0", p.Number)
		}
		if err := p.validate(); err != nil {
			return err
		}
		if p.Blob != nil {
			stored += p.Size
		}
	}
	if stored != v.Size {
		return invalid("put: %d bytes in body and blob, expected %d", stored, v.Size)
	}
	return nil
}

func (c *Command) validateUpload() error {
	u := c.Upload
	switch {
	case u == nil || u.ID.IsZero():
		return invalid("create upload: no upload id")
	case u.Key != "" && u.Key != c.Key:
		return invalid("create upload: upload of key %q under key %q", u.Key, c.Key)
	case u.Algorithm > 5:
		return invalid("create upload: checksum algorithm %d, expected 0 to 5", u.Algorithm)
	case u.Done != nil:
		return invalid("create upload: already done")
	}
	return validHeaders(u.Headers)
}

func (c *Command) validatePart() error {
	switch {
	case c.UploadID.IsZero() || c.Part == nil:
		return invalid("put part: no upload id or no part")
	case c.Part.Number < 1 || c.Part.Number > MaxParts:
		return invalid("put part: number %d, expected 1 to %d", c.Part.Number, MaxParts)
	case (c.Part.Size > 0) != (c.Part.Blob != nil):
		return invalid("put part: %d bytes, with a blob: %t", c.Part.Size, c.Part.Blob != nil)
	}
	return c.Part.validate()
}

func (c *Command) validateComplete() error {
	switch {
	case c.UploadID.IsZero() || c.Version == nil || c.Version.ID.IsZero():
		return invalid("complete: no upload id or no version id")
	case len(c.Complete) == 0 || len(c.Complete) > MaxParts:
		return invalid("complete: %d parts, expected 1 to %d", len(c.Complete), MaxParts)
	case len(c.ETag) > MaxETag:
		return invalid("complete: etag of %d bytes, expected at most %d", len(c.ETag), MaxETag)
	}
	size := 0
	for _, p := range c.Complete {
		if len(p.ETag) > MaxETag || len(p.Checksum) > MaxChecksum {
			return invalid("complete: part %d: etag of %d and checksum of %d bytes, expected at most %d and %d",
				p.Number, len(p.ETag), len(p.Checksum), MaxETag, MaxChecksum)
		}
		size += 8 + len(p.ETag) + len(p.Checksum)
	}
	if size > maxPayload {
		return invalid("complete: part list of %d bytes, expected at most %d", size, maxPayload)
	}
	return validChecksums(c.Checksums)
}

func (c *Command) validateBatch() error {
	n := max(len(c.Landings), len(c.Reports), len(c.Repairs), len(c.Blobs), len(c.Abandoned))
	if n == 0 || n > MaxBatch {
		return invalid("op %d: batch of %d, expected 1 to %d", c.Op, n, MaxBatch)
	}
	size := 0
	for i := range c.Landings {
		size += len(c.Landings[i].Key) + 64
	}
	for i := range c.Reports {
		size += len(c.Reports[i].Key) + 64
	}
	for i := range c.Abandoned {
		if err := c.Abandoned[i].validShape(); err != nil {
			return err
		}
		size += minBlob + 64 + 8*len(c.Abandoned[i].Digests)
	}
	if size > maxPayload {
		return invalid("op %d: batch of %d bytes, expected at most %d", c.Op, size, maxPayload)
	}
	for _, r := range c.Repairs {
		if r.State < RepairSuperseded || r.State > RepairLost {
			return invalid("repair of blob %s: state %d, expected %d to %d", r.Blob, r.State, RepairSuperseded, RepairLost)
		}
	}
	return nil
}

// Validate checks limits and that Op has what it names. The error is InvalidArgument.
func (q *Query) Validate() error {
	switch {
	case q.Op < QueryGet || q.Op > QueryRepairCount:
		return invalid("read query %d, expected %d to %d", q.Op, QueryGet, QueryRepairCount)
	case q.Max < 0 || q.Max > MaxListKeys:
		return invalid("query %d: at most %d rows asked for, expected 0 to %d", q.Op, q.Max, MaxListKeys)
	case len(q.Key) > MaxKeyLen:
		return invalid("query %d: key of %d bytes, expected at most %d", q.Op, len(q.Key), MaxKeyLen)
	case max(len(q.Prefix), len(q.Delimiter), len(q.After)) > MaxQueryText:
		return invalid("query %d: prefix, delimiter and after of %d, %d and %d bytes, expected at most %d", q.Op,
			len(q.Prefix), len(q.Delimiter), len(q.After), MaxQueryText)
	case len(q.Blobs) > MaxBatch:
		return invalid("query %d: %d blobs, expected at most %d", q.Op, len(q.Blobs), MaxBatch)
	}
	switch q.Op {
	case QueryGet, QueryUpload, QueryParts:
		return validKey(q.Key)
	}
	return nil
}
