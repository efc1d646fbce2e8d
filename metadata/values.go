package metadata

import (
	"encoding/binary"

	"objstore/internal/ident"
)

// Encodings of the values that commands, answers and rows share. The constants are the least bytes each takes.
const (
	minPair     = 2
	minChecksum = 3
	minBlob     = 16 + 7 + 1 + 16 + 2
	minPart     = 6
	minVersion  = 16 + 9
	minID       = 16
)

func appendID(b []byte, id *ident.ID) []byte { return append(b, id[:]...) }
func readID(d *dec) ident.ID                 { return d.id() }

func appendPair(b []byte, p *Pair) []byte { return appendStr(appendStr(b, p.Name), p.Value) }
func readPair(d *dec) Pair                { return Pair{d.str(), d.str()} }
func appendString(b []byte, s *string) []byte {
	return appendStr(b, *s)
}
func readString(d *dec) string { return d.str() }

func appendChecksum(b []byte, c *Checksum) []byte {
	return appendBytes(appendBool(append(b, c.Algorithm), c.Composite), c.Value)
}

func readChecksum(d *dec) Checksum {
	return Checksum{Algorithm: d.u8(), Composite: d.bool(), Value: d.bytes()}
}

func appendBlob(b []byte, x *Blob) []byte {
	b = append(b, x.ID[:]...)
	b = binary.AppendUvarint(b, uint64(x.PG))
	b = binary.AppendUvarint(b, x.Epoch)
	b = append(b, x.K, x.M)
	b = binary.AppendUvarint(b, uint64(x.CellSize))
	b = appendInt(b, x.Size)
	b = binary.AppendUvarint(b, uint64(x.Missing))
	b = binary.AppendUvarint(b, uint64(len(x.Digests)))
	for _, v := range x.Digests {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.AppendUvarint(b, uint64(x.WriterNode))
	b = append(b, x.WriterStart[:]...)
	return binary.AppendUvarint(b, x.WriterPut)
}

func readBlob(d *dec) (x Blob) {
	x.ID = d.id()
	x.PG = ident.PG(d.u32())
	x.Epoch = d.uv()
	x.K, x.M = d.u8(), d.u8()
	x.CellSize = d.u32()
	x.Size = d.int()
	x.Missing = d.u32()
	x.Digests = list(d, 8, (*dec).u64)
	x.WriterNode = ident.Node(d.u32())
	x.WriterStart = d.id()
	x.WriterPut = d.uv()
	return x
}

const (
	partHasChecksum = 1 << iota
	partHasBlob
	partFlags = partHasChecksum | partHasBlob
)

func appendPart(b []byte, p *Part) []byte {
	var flags byte
	if p.Checksum != nil {
		flags |= partHasChecksum
	}
	if p.Blob != nil {
		flags |= partHasBlob
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(p.Number))
	b = appendInt(b, p.Size)
	b = appendStr(b, p.ETag)
	b = appendInt(b, p.ModTime)
	if p.Checksum != nil {
		b = appendChecksum(b, p.Checksum)
	}
	if p.Blob != nil {
		b = appendBlob(b, p.Blob)
	}
	return b
}

func readPart(d *dec) (p Part) {
	flags := d.u8()
	if flags&^partFlags != 0 {
		d.failf("read part flags %#x, expected none but %#x", flags, partFlags)
	}
	p.Number = d.u16()
	p.Size = d.int()
	p.ETag = d.str()
	p.ModTime = d.int()
	if flags&partHasChecksum != 0 {
		c := readChecksum(d)
		p.Checksum = &c
	}
	if flags&partHasBlob != 0 {
		x := readBlob(d)
		p.Blob = &x
	}
	return p
}

const (
	versionDeleteMarker = 1 << iota
	versionInline
	versionChunked // rows only: the parts are in m/ rows
	versionFlags   = versionDeleteMarker | versionInline | versionChunked
)

// appendVersionHead writes all of v but its parts.
func appendVersionHead(b []byte, v *Version, flags byte) []byte {
	if v.DeleteMarker {
		flags |= versionDeleteMarker
	}
	if v.Inline {
		flags |= versionInline
	}
	b = append(b, flags)
	b = append(b, v.ID[:]...)
	b = binary.AppendUvarint(b, v.Seq)
	b = appendStr(b, v.Key)
	b = appendInt(b, v.Size)
	b = appendStr(b, v.ETag)
	b = appendInt(b, v.ModTime)
	b = appendList(b, v.Headers, appendPair)
	return appendList(b, v.Checksums, appendChecksum)
}

func readVersionHead(d *dec) (v Version, flags byte) {
	flags = d.u8()
	if flags&^versionFlags != 0 {
		d.failf("read version flags %#x, expected none but %#x", flags, versionFlags)
	}
	v.DeleteMarker = flags&versionDeleteMarker != 0
	v.Inline = flags&versionInline != 0
	v.ID = d.id()
	v.Seq = d.uv()
	v.Key = d.str()
	v.Size = d.int()
	v.ETag = d.str()
	v.ModTime = d.int()
	v.Headers = list(d, minPair, readPair)
	v.Checksums = list(d, minChecksum, readChecksum)
	return v, flags
}

func appendVersion(b []byte, v *Version) []byte {
	return appendList(appendVersionHead(b, v, 0), v.Parts, appendPart)
}

func readVersion(d *dec) Version {
	v, flags := readVersionHead(d)
	if flags&versionChunked != 0 {
		d.failf("read a version without its part list, expected a whole one")
	}
	v.Parts = list(d, minPart, readPart)
	return v
}

func appendUpload(b []byte, u *Upload) []byte {
	b = append(b, u.ID[:]...)
	b = appendStr(b, u.Key)
	b = appendInt(b, u.Created)
	b = appendList(b, u.Headers, appendPair)
	b = append(b, u.Algorithm)
	b = appendBool(b, u.Composite)
	b = appendBool(b, u.Done != nil)
	if u.Done == nil {
		return b
	}
	b = append(b, u.Done.Version[:]...)
	b = appendStr(b, u.Done.ETag)
	b = appendInt(b, u.Done.At)
	b = appendBool(b, u.Done.Checksum != nil)
	if u.Done.Checksum != nil {
		b = appendChecksum(b, u.Done.Checksum)
	}
	return b
}

const minUpload = 16 + 6

func readUpload(d *dec) (u Upload) {
	u.ID = d.id()
	u.Key = d.str()
	u.Created = d.int()
	u.Headers = list(d, minPair, readPair)
	u.Algorithm = d.u8()
	u.Composite = d.bool()
	if d.bool() {
		u.Done = &UploadDone{Version: d.id(), ETag: d.str(), At: d.int()}
		if d.bool() {
			c := readChecksum(d)
			u.Done.Checksum = &c
		}
	}
	return u
}

func appendSpan(b []byte, s *Span) []byte {
	b = append(b, s.Bucket[:]...)
	b = appendStr(b, s.Start)
	b = appendStr(b, s.End)
	b = binary.AppendUvarint(b, s.Generation)
	b = binary.AppendUvarint(b, s.MinEpoch)
	b = binary.AppendUvarint(b, s.Seq)
	b = appendBool(b, s.Sealed)
	return append(b, s.Versioning)
}

const minSpan = 16 + 7

func readSpan(d *dec) (s Span) {
	s.Bucket = d.id()
	s.Start = d.str()
	s.End = d.str()
	s.Generation = d.uv()
	s.MinEpoch = d.uv()
	s.Seq = d.uv()
	s.Sealed = d.bool()
	s.Versioning = d.u8()
	return s
}

func appendPrecondition(b []byte, p *Precondition) []byte {
	b = appendBool(b, p.IfNoneMatchAny)
	b = appendList(b, p.IfNoneMatch, appendString)
	return appendList(b, p.IfMatch, appendString)
}

func readPrecondition(d *dec) Precondition {
	return Precondition{IfNoneMatchAny: d.bool(), IfNoneMatch: list(d, 1, readString), IfMatch: list(d, 1, readString)}
}

func appendCompletePart(b []byte, p *CompletePart) []byte {
	return appendBytes(appendStr(binary.AppendUvarint(b, uint64(p.Number)), p.ETag), p.Checksum)
}

func readCompletePart(d *dec) CompletePart {
	return CompletePart{Number: d.u16(), ETag: d.str(), Checksum: d.bytes()}
}

func appendLanding(b []byte, l *Landing) []byte {
	b = appendStr(b, l.Key)
	b = append(b, l.Blob[:]...)
	b = append(b, l.Index)
	b = binary.AppendUvarint(b, uint64(l.Drive))
	b = binary.AppendUvarint(b, uint64(l.Incarnation))
	return binary.LittleEndian.AppendUint64(b, l.Digest)
}

const minLanding = 1 + 16 + 3 + 8

func readLanding(d *dec) Landing {
	return Landing{Key: d.str(), Blob: d.id(), Index: d.u8(), Drive: ident.Drive(d.u32()),
		Incarnation: ident.Incarnation(d.u32()), Digest: d.u64()}
}

func appendReport(b []byte, r *Report) []byte {
	b = appendStr(b, r.Key)
	b = append(b, r.Version[:]...)
	b = append(b, r.Blob[:]...)
	return append(b, r.Index)
}

const minReport = 1 + 16 + 16 + 1

func readReport(d *dec) Report {
	return Report{Key: d.str(), Version: d.id(), Blob: d.id(), Index: d.u8()}
}

func appendOutcome(b []byte, o *RepairOutcome) []byte {
	return append(append(b, o.Blob[:]...), o.Index, uint8(o.State))
}

const minOutcome = 16 + 2

func readOutcome(d *dec) RepairOutcome {
	return RepairOutcome{Blob: d.id(), Index: d.u8(), State: RepairState(d.u8())}
}

func appendRepair(b []byte, r *RepairRow) []byte {
	b = appendBlob(b, &r.Blob)
	b = append(b, r.Index)
	b = append(b, r.Bucket[:]...)
	b = appendStr(b, r.Key)
	b = append(b, r.Version[:]...)
	b = binary.AppendUvarint(b, uint64(r.Part))
	b = append(b, r.UploadID[:]...)
	b = append(b, r.Priority)
	b = appendInt(b, r.Created)
	return appendBool(appendBool(b, r.Checked), r.Lost)
}

const minRepair = minBlob + 1 + 3*16 + 6

func readRepair(d *dec) RepairRow {
	return RepairRow{Blob: readBlob(d), Index: d.u8(), Bucket: d.id(), Key: d.str(), Version: d.id(), Part: d.u16(),
		UploadID: d.id(), Priority: d.u8(), Created: d.int(), Checked: d.bool(), Lost: d.bool()}
}

func appendGarbage(b []byte, g *GarbageRow) []byte {
	b = appendBlob(b, &g.Blob)
	b = append(b, g.Bucket[:]...)
	b = appendStr(b, g.Key)
	return appendInt(b, g.Created)
}

const minGarbage = minBlob + 16 + 2

func readGarbage(d *dec) GarbageRow {
	return GarbageRow{Blob: readBlob(d), Bucket: d.id(), Key: d.str(), Created: d.int()}
}

func appendBlobRef(b []byte, r *BlobRef) []byte {
	b = appendBlob(b, &r.Blob)
	b = append(b, r.Bucket[:]...)
	b = appendStr(b, r.Key)
	b = append(b, r.Version[:]...)
	b = binary.AppendUvarint(b, uint64(r.Part))
	return append(b, r.UploadID[:]...)
}

const minBlobRef = minBlob + 3*16 + 2

func readBlobRef(d *dec) BlobRef {
	return BlobRef{Blob: readBlob(d), Bucket: d.id(), Key: d.str(), Version: d.id(), Part: d.u16(), UploadID: d.id()}
}
