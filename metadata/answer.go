package metadata

import (
	"encoding/binary"

	"objstore/internal/oerr"
)

const (
	resultVersion = 1
	queryVersion  = 1
	answerVersion = 1
)

// Append encodes r.
func (r *Result) Append(b []byte) []byte {
	b = append(b, resultVersion, r.Code)
	b = appendStr(b, r.Detail)
	b = append(b, r.Version[:]...)
	b = binary.AppendUvarint(b, r.Seq)
	b = appendInt(b, r.ModTime)
	b = appendStr(b, r.ETag)
	b = binary.AppendUvarint(b, uint64(len(r.Live)))
	for _, v := range r.Live {
		b = appendBool(b, v)
	}
	return binary.AppendUvarint(b, r.Index)
}

// DecodeResult reads what Append wrote.
func DecodeResult(b []byte) (*Result, error) {
	d := newDec("metadata.result", oerr.InvalidArgument, b)
	d.version(resultVersion)
	r := &Result{Code: d.u8(), Detail: d.str(), Version: d.id(), Seq: d.uv(), ModTime: d.int(), ETag: d.str(),
		Live: list(d, 1, (*dec).bool), Index: d.uv()}
	if err := d.end(); err != nil {
		return nil, err
	}
	return r, nil
}

// Append encodes q.
func (q *Query) Append(b []byte) []byte {
	b = append(b, queryVersion, byte(q.Op))
	b = append(b, q.Bucket[:]...)
	b = binary.AppendUvarint(b, q.Generation)
	b = appendStr(b, q.Key)
	b = appendBool(b, q.WithBody)
	b = appendStr(b, q.Prefix)
	b = appendStr(b, q.Delimiter)
	b = appendStr(b, q.After)
	b = append(b, q.AfterUpload[:]...)
	b = binary.AppendUvarint(b, uint64(q.AfterPart))
	b = append(b, q.UploadID[:]...)
	b = binary.AppendUvarint(b, uint64(q.Max))
	return appendList(b, q.Blobs, appendID)
}

// DecodeQuery reads what Append wrote and validates it.
func DecodeQuery(b []byte) (*Query, error) {
	d := newDec("metadata.query", oerr.InvalidArgument, b)
	d.version(queryVersion)
	q := &Query{Op: QueryOp(d.u8()), Bucket: d.id(), Generation: d.uv(), Key: d.str(), WithBody: d.bool(), Prefix: d.str(),
		Delimiter: d.str(), After: d.str(), AfterUpload: d.id(), AfterPart: d.u16(), UploadID: d.id(),
		Max: int(d.num(MaxListKeys)), Blobs: list(d, minID, readID)}
	if err := d.end(); err != nil {
		return nil, err
	}
	return q, q.Validate()
}

const (
	answerHasVersion = 1 << iota
	answerTruncated
	answerHasUpload
	answerFlags = answerHasVersion | answerTruncated | answerHasUpload
)

// countsSize is the fixed place of the two counts that a listing fills in after its scan.
const countsSize = 8

// Append encodes a: version, body, the listing (counts, entries with their l/ rows as they are, prefixes), the rest.
func (a *Answer) Append(b []byte) []byte {
	b = append(b, answerVersion)
	b = appendBytes(b, a.Body)
	at := len(b)
	b = append(b, make([]byte, countsSize)...)
	for i := range a.Entries {
		e := &a.Entries[i]
		row := currentRow{Version: e.Version, Size: e.Size, ETag: e.ETag, ModTime: e.ModTime, Algorithm: e.Algorithm, Composite: e.Composite}
		var scratch [maxCurrentRow]byte
		b = appendEntry(b, e.Key, row.append(scratch[:0]))
	}
	for _, p := range a.Prefixes {
		b = appendStr(b, p)
	}
	putCounts(b[at:], len(a.Entries), len(a.Prefixes))
	return a.appendRest(b)
}

func putCounts(b []byte, entries, prefixes int) {
	binary.BigEndian.PutUint32(b, uint32(entries))
	binary.BigEndian.PutUint32(b[4:], uint32(prefixes))
}

func appendEntry[T ~string | ~[]byte](b []byte, key T, row []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	return appendBytes(b, row)
}

func (a *Answer) appendRest(b []byte) []byte {
	var flags byte
	if a.Version != nil {
		flags |= answerHasVersion
	}
	if a.Truncated {
		flags |= answerTruncated
	}
	if a.Upload != nil {
		flags |= answerHasUpload
	}
	b = append(b, flags)
	b = appendStr(b, a.Next)
	if a.Version != nil {
		b = appendVersion(b, a.Version)
	}
	if a.Upload != nil {
		b = appendUpload(b, a.Upload)
	}
	b = appendList(b, a.Uploads, appendUpload)
	b = appendList(b, a.Parts, appendPart)
	b = appendList(b, a.Repairs, appendRepair)
	b = appendList(b, a.Garbage, appendGarbage)
	b = appendList(b, a.Blobs, appendBlobRef)
	b = binary.AppendUvarint(b, uint64(len(a.Referenced)))
	for _, v := range a.Referenced {
		b = appendBool(b, v)
	}
	b = appendList(b, a.Spans, appendSpan)
	return appendInt(appendInt(b, a.Pending), a.Lost)
}

// DecodeAnswer reads what Append or AskEncoded wrote. Body is part of b itself; everything else is a copy.
func DecodeAnswer(b []byte) (*Answer, error) {
	const op = "metadata.answer"
	head := dec{op: op, kind: oerr.InvalidArgument, b: b}
	head.version(answerVersion)
	a := &Answer{}
	if body := head.take(int(head.num(uint64(head.left())))); len(body) > 0 {
		a.Body = body
	}
	if head.err != nil {
		return nil, head.err
	}
	d := newDec(op, oerr.InvalidArgument, b[head.pos:])
	a.readListing(d)
	flags := d.u8()
	if flags&^answerFlags != 0 {
		d.failf("read answer flags %#x, expected none but %#x", flags, answerFlags)
	}
	a.Truncated = flags&answerTruncated != 0
	a.Next = d.str()
	if flags&answerHasVersion != 0 {
		v := readVersion(d)
		a.Version = &v
	}
	if flags&answerHasUpload != 0 {
		u := readUpload(d)
		a.Upload = &u
	}
	a.Uploads = list(d, minUpload, readUpload)
	a.Parts = list(d, minPart, readPart)
	a.Repairs = list(d, minRepair, readRepair)
	a.Garbage = list(d, minGarbage, readGarbage)
	a.Blobs = list(d, minBlobRef, readBlobRef)
	a.Referenced = list(d, 1, (*dec).bool)
	a.Spans = list(d, minSpan, readSpan)
	a.Pending = d.int()
	a.Lost = d.int()
	if err := d.end(); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *Answer) readListing(d *dec) {
	counts := d.take(countsSize)
	if counts == nil {
		return
	}
	entries, prefixes := binary.BigEndian.Uint32(counts), binary.BigEndian.Uint32(counts[4:])
	if int64(entries)*(2+minCurrentRow)+int64(prefixes) > int64(d.left()) {
		d.failf("read counts of %d entries and %d prefixes in %d bytes", entries, prefixes, d.left())
		return
	}
	if entries > 0 {
		a.Entries = make([]Entry, entries)
	}
	for i := range a.Entries {
		e := &a.Entries[i]
		e.Key = d.str()
		n := d.num(uint64(d.left()))
		end := d.pos + int(n)
		row := readCurrent(d)
		if d.err == nil && d.pos != end {
			d.failf("entry %d: its row ends at byte %d, expected %d", i, d.pos, end)
		}
		if d.err != nil {
			return
		}
		row.fill(e)
	}
	if prefixes > 0 {
		a.Prefixes = make([]string, prefixes)
	}
	for i := range a.Prefixes {
		a.Prefixes[i] = d.str()
	}
}
