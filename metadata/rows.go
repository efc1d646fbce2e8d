package metadata

import (
	"encoding/binary"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Values of rows. Each begins with rowVersion. A row that does not decode is Corrupt and stops the replica.
const rowVersion = 1

const rowOp = "metadata.row"

func rowDec(b []byte) *dec {
	d := newDec(rowOp, oerr.Corrupt, b)
	d.version(rowVersion)
	return d
}

// maxCurrentRow bounds an l/ row in bytes, so that a page of a listing stays small (PROTOCOLS C).
const maxCurrentRow = 512

const minCurrentRow = 2 + 16 + 4

// currentRow is an l/ row: what a listing shows, and what a mutation needs to know about the version it replaces.
type currentRow struct {
	Version   ident.ID
	Seq       uint64
	Size      int64
	ETag      string
	ModTime   int64
	Algorithm uint8
	Composite bool
	Inline    bool // there is a d/ row
	Blobs     bool // the v/ row leads to blobs or m/ rows
}

const (
	currentAlgorithm = 7
	currentComposite = 1 << 3
	currentInline    = 1 << 4
	currentBlobs     = 1 << 5
	currentFlags     = currentAlgorithm | currentComposite | currentInline | currentBlobs
)

func (r *currentRow) append(b []byte) []byte {
	flags := r.Algorithm & currentAlgorithm
	if r.Composite {
		flags |= currentComposite
	}
	if r.Inline {
		flags |= currentInline
	}
	if r.Blobs {
		flags |= currentBlobs
	}
	b = append(b, rowVersion, flags)
	b = append(b, r.Version[:]...)
	b = binary.AppendUvarint(b, r.Seq)
	b = appendInt(b, r.Size)
	b = appendStr(b, r.ETag)
	return appendInt(b, r.ModTime)
}

func readCurrent(d *dec) (r currentRow) {
	d.version(rowVersion)
	flags := d.u8()
	if flags&^currentFlags != 0 {
		d.failf("read flags %#x, expected none but %#x", flags, currentFlags)
	}
	r.Algorithm = flags & currentAlgorithm
	r.Composite = flags&currentComposite != 0
	r.Inline = flags&currentInline != 0
	r.Blobs = flags&currentBlobs != 0
	r.Version = d.id()
	r.Seq = d.uv()
	r.Size = d.int()
	r.ETag = d.str()
	r.ModTime = d.int()
	return r
}

func decodeCurrent(b []byte) (currentRow, error) {
	d := newDec(rowOp, oerr.Corrupt, b)
	r := readCurrent(d)
	return r, d.end()
}

func (r *currentRow) fill(e *Entry) {
	e.Version, e.Size, e.ETag, e.ModTime, e.Algorithm, e.Composite = r.Version, r.Size, r.ETag, r.ModTime, r.Algorithm, r.Composite
}

func currentOf(v *Version) currentRow {
	r := currentRow{Version: v.ID, Seq: v.Seq, Size: v.Size, ETag: v.ETag, ModTime: v.ModTime, Inline: v.Inline}
	if len(v.Checksums) > 0 {
		r.Algorithm, r.Composite = v.Checksums[0].Algorithm, v.Checksums[0].Composite
	}
	r.Blobs = len(v.Parts) > chunkParts
	for i := range v.Parts {
		r.Blobs = r.Blobs || v.Parts[i].Blob != nil
	}
	return r
}

// chunkParts is how many parts an m/ row holds. A version with more parts than that has them in m/ rows, others in the
// v/ row itself.
const chunkParts = 32

// appendVersionRow writes a v/ row. The key stands in the row's key and is left out.
func appendVersionRow(b []byte, v *Version) []byte {
	b = append(b, rowVersion)
	bare := *v
	bare.Key = ""
	if len(v.Parts) <= chunkParts {
		return appendVersion(b, &bare)
	}
	b = appendVersionHead(b, &bare, versionChunked)
	return binary.AppendUvarint(b, uint64(len(v.Parts)))
}

// decodeVersionRow reads a v/ row. chunked is the number of parts that are in m/ rows, 0 when v has them all.
func decodeVersionRow(b []byte, key string) (v Version, chunked int, err error) {
	d := rowDec(b)
	v, flags := readVersionHead(d)
	if flags&versionChunked != 0 {
		chunked = int(d.num(MaxParts))
	} else {
		v.Parts = list(d, minPart, readPart)
	}
	v.Key = key
	return v, chunked, d.end()
}

func appendPartsRow(b []byte, parts []Part) []byte {
	return appendList(append(b, rowVersion), parts, appendPart)
}

func decodePartsRow(b []byte) ([]Part, error) {
	d := rowDec(b)
	parts := list(d, minPart, readPart)
	return parts, d.end()
}

func appendPartRow(b []byte, p *Part) []byte { return appendPart(append(b, rowVersion), p) }

func decodePartRow(b []byte) (Part, error) {
	d := rowDec(b)
	p := readPart(d)
	return p, d.end()
}

func appendUploadRow(b []byte, u *Upload) []byte { return appendUpload(append(b, rowVersion), u) }

func decodeUploadRow(b []byte) (Upload, error) {
	d := rowDec(b)
	u := readUpload(d)
	return u, d.end()
}

// spanState is a row of the span table: the span, and counts that say whether it is worth looking for its rows.
type spanState struct {
	Span
	Dropped   bool   // only g/ rows are left
	Pending   uint64 // r/ rows still to be worked off
	Lost      uint64 // r/ rows that are lost
	Garbage   uint64 // g/ rows
	TrimEpoch uint64 // dedup epoch at which a command of this span last trimmed the window
}

func (s *spanState) append(b []byte) []byte {
	b = appendSpan(append(b, rowVersion), &s.Span)
	b = appendBool(b, s.Dropped)
	b = binary.AppendUvarint(b, s.Pending)
	b = binary.AppendUvarint(b, s.Lost)
	b = binary.AppendUvarint(b, s.Garbage)
	return binary.AppendUvarint(b, s.TrimEpoch)
}

func decodeSpanState(b []byte) (*spanState, error) {
	d := rowDec(b)
	s := &spanState{Span: readSpan(d), Dropped: d.bool(), Pending: d.uv(), Lost: d.uv(), Garbage: d.uv(), TrimEpoch: d.uv()}
	return s, d.end()
}

// refRow is a b/ row: which row references a blob. It goes in the batch that removes the reference.
type refRow struct {
	Key      string
	Part     uint16   // part number, 0 for a single-part object
	UploadID ident.ID // set while the part belongs to an open upload; else Version is
	Version  ident.ID
	Seq      uint64 // of the version
	Pos      uint16 // position in the version's part list
}

func (r *refRow) append(b []byte) []byte {
	b = append(b, rowVersion)
	b = appendBool(b, !r.UploadID.IsZero())
	b = appendStr(b, r.Key)
	b = binary.AppendUvarint(b, uint64(r.Part))
	if !r.UploadID.IsZero() {
		return append(b, r.UploadID[:]...)
	}
	b = append(b, r.Version[:]...)
	b = binary.AppendUvarint(b, r.Seq)
	return binary.AppendUvarint(b, uint64(r.Pos))
}

func decodeRef(b []byte) (r refRow, err error) {
	d := rowDec(b)
	upload := d.bool()
	r.Key = d.str()
	r.Part = d.u16()
	if upload {
		if r.UploadID = d.id(); r.UploadID.IsZero() {
			d.failf("read upload id 0, expected another")
		}
		return r, d.end()
	}
	r.Version = d.id()
	r.Seq = d.uv()
	r.Pos = d.u16()
	return r, d.end()
}

// repairState is the value of an r/ row; the rest of a RepairRow is read through the blob's b/ row.
type repairState struct {
	Created int64
	Checked bool
}

func (r repairState) append(b []byte) []byte {
	return appendBool(appendInt(append(b, rowVersion), r.Created), r.Checked)
}

func decodeRepairState(b []byte) (repairState, error) {
	d := rowDec(b)
	r := repairState{Created: d.int(), Checked: d.bool()}
	return r, d.end()
}

func appendGarbageRow(b []byte, g *GarbageRow) []byte { return appendGarbage(append(b, rowVersion), g) }

func decodeGarbageRow(b []byte) (GarbageRow, error) {
	d := rowDec(b)
	g := readGarbage(d)
	return g, d.end()
}

func decodeDedup(b []byte) (result []byte, err error) {
	if len(b) == 0 || b[0] != rowVersion {
		return nil, oerr.Errorf(rowOp, oerr.Corrupt, "dedup row of %d bytes, expected version %d", len(b), rowVersion)
	}
	return append([]byte(nil), b[1:]...), nil
}
