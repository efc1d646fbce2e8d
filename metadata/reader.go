package metadata

import (
	"bytes"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata/host"
)

// findSpan returns the span that owns key, nil when the group has none.
func findSpan(r host.Reader, bucket ident.ID, key string) (*spanState, error) {
	// The span from the start of the key space is looked up directly: version 1 has no other.
	v, ok, err := r.Get(spanKey(bucket, ""))
	if err != nil {
		return nil, err
	}
	if ok {
		sp, err := decodeSpanState(v)
		if err != nil || sp.End == "" || key < sp.End {
			return sp, err
		}
	}
	var found *spanState
	err = scanSpans(r, append([]byte{groupSpan}, bucket[:]...), func(sp *spanState) bool {
		if sp.Start <= key && (sp.End == "" || key < sp.End) {
			found = sp
		}
		return found == nil && sp.Start <= key
	})
	return found, err
}

// scanSpans calls f for each row of the span table under prefix, in order, until it returns false.
func scanSpans(r host.Reader, prefix []byte, f func(*spanState) bool) error {
	return scan(r, prefix, successor(prefix), func(_, value []byte) (bool, error) {
		sp, err := decodeSpanState(value)
		return err == nil && f(sp), err
	})
}

// scan calls f for each row of [lower, upper) until it returns false. f must not write.
func scan(r host.Reader, lower, upper []byte, f func(key, value []byte) (more bool, err error)) (err error) {
	it, err := r.Iter(lower, upper)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := it.Close(); err == nil {
			err = cerr
		}
	}()
	for it.Next() {
		if more, err := f(it.Key(), it.Value()); !more || err != nil {
			return err
		}
	}
	return nil
}

// reader reads the rows of one span.
type reader struct {
	r  host.Reader
	sp *spanState
	k  keys
}

func (x *reader) enter(sp *spanState) {
	x.sp = sp
	x.k.prefix = appendKeyPart(append(append(x.k.prefix[:0], groupData), sp.Bucket[:]...), sp.Start)
}

func (x *reader) has(key []byte) (bool, error) {
	_, ok, err := x.r.Get(key)
	return ok, err
}

func (x *reader) current(key string) (cur currentRow, ok bool, err error) {
	v, ok, err := x.r.Get(x.k.current(key))
	if !ok || err != nil {
		return cur, false, err
	}
	cur, err = decodeCurrent(v)
	return cur, err == nil, err
}

// head reads a v/ row; of a chunked version the parts are left out and counted.
func (x *reader) head(key string, seq uint64) (v Version, chunked int, err error) {
	b, ok, err := x.r.Get(x.k.version(key, seq))
	if err != nil {
		return v, 0, err
	}
	if !ok {
		return v, 0, oerr.Errorf("metadata.version", oerr.Corrupt, "version %d of key %q: no row, expected one", seq, key)
	}
	return decodeVersionRow(b, key)
}

// version reads a version with all its parts.
func (x *reader) version(key string, seq uint64) (*Version, error) {
	v, chunked, err := x.head(key, seq)
	if err != nil || chunked == 0 {
		return &v, err
	}
	v.Parts = make([]Part, 0, chunked)
	lower, upper := x.k.bounds(tagParts, v.ID[:]...)
	err = scan(x.r, lower, upper, func(_, value []byte) (bool, error) {
		parts, err := decodePartsRow(value)
		v.Parts = append(v.Parts, parts...)
		return len(v.Parts) <= chunked, err
	})
	if err == nil && len(v.Parts) != chunked {
		err = oerr.Errorf("metadata.version", oerr.Corrupt, "version %s: read %d parts, expected %d", v.ID, len(v.Parts), chunked)
	}
	return &v, err
}

func (x *reader) upload(key string, id ident.ID) (u Upload, ok bool, err error) {
	v, ok, err := x.r.Get(x.k.upload(key, id))
	if !ok || err != nil {
		return u, false, err
	}
	u, err = decodeUploadRow(v)
	return u, err == nil, err
}

// done reads an upload of this key that was completed within the last day.
func (x *reader) done(key string, id ident.ID) (u Upload, ok bool, err error) {
	v, ok, err := x.r.Get(x.k.byID(tagDone, id))
	if !ok || err != nil {
		return u, false, err
	}
	u, err = decodeUploadRow(v)
	return u, err == nil && u.Key == key, err
}

// parts reads up to limit parts of an open upload, in order, from number first up.
func (x *reader) parts(id ident.ID, first uint16, limit int) (parts []Part, err error) {
	lower := bytes.Clone(x.k.numbered(tagPart, id, first))
	_, upper := x.k.bounds(tagPart, id[:]...)
	err = scan(x.r, lower, upper, func(_, value []byte) (bool, error) {
		if len(parts) == limit {
			return false, nil
		}
		p, err := decodePartRow(value)
		parts = append(parts, p)
		return true, err
	})
	return parts, err
}

func (x *reader) ref(blob ident.ID) (ref refRow, ok bool, err error) {
	v, ok, err := x.r.Get(x.k.byID(tagBlob, blob))
	if !ok || err != nil {
		return ref, false, err
	}
	ref, err = decodeRef(v)
	return ref, err == nil, err
}

// place is a part and the row it stands in, so that it can be changed and written back.
type place struct {
	ref     refRow
	version Version // when the part stands in a v/ row
	chunked bool
	chunk   uint16
	parts   []Part // the part's row
	part    *Part
}

// find reads the part that ref leads to. It is Corrupt when there is none: references and parts change together.
func (x *reader) find(blob ident.ID, ref refRow) (*place, error) {
	at := &place{ref: ref}
	pos := int(ref.Pos)
	if !ref.UploadID.IsZero() {
		b, ok, err := x.r.Get(x.k.numbered(tagPart, ref.UploadID, ref.Part))
		if err != nil {
			return nil, err
		}
		if ok {
			p, err := decodePartRow(b)
			if err != nil {
				return nil, err
			}
			at.parts = []Part{p}
		}
		pos = 0
	} else {
		v, chunked, err := x.head(ref.Key, ref.Seq)
		if err != nil {
			return nil, err
		}
		at.version, at.parts, at.chunked = v, v.Parts, chunked > 0
		if at.chunked {
			at.chunk, pos = ref.Pos/chunkParts, pos%chunkParts
			b, ok, err := x.r.Get(x.k.numbered(tagParts, v.ID, at.chunk))
			if err != nil {
				return nil, err
			}
			if ok {
				if at.parts, err = decodePartsRow(b); err != nil {
					return nil, err
				}
			}
		}
	}
	if pos >= len(at.parts) || at.parts[pos].Blob == nil || at.parts[pos].Blob.ID != blob {
		return nil, oerr.Errorf("metadata.blob", oerr.Corrupt, "blob %s of key %q: its b row leads to another part or none", blob, ref.Key)
	}
	at.part = &at.parts[pos]
	return at, nil
}
