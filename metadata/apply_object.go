package metadata

import (
	"slices"

	"objstore/internal/oerr"
)

// check says whether the condition holds for a key whose current version is cur.
func (p *Precondition) check(exists bool, etag string) error {
	if len(p.IfMatch) > 0 {
		if !exists {
			return refuse(oerr.NoSuchKey, "if-match: the key has no current version")
		}
		if !slices.Contains(p.IfMatch, "*") && !slices.Contains(p.IfMatch, etag) {
			return refuse(oerr.PreconditionFailed, "if-match: the current etag is %q", etag)
		}
	}
	if exists && (p.IfNoneMatchAny || slices.Contains(p.IfNoneMatch, etag)) {
		return refuse(oerr.PreconditionFailed, "if-none-match: the current etag is %q", etag)
	}
	return nil
}

func (t *txn) put() error {
	v := t.c.Version
	var blob *Blob
	if len(v.Parts) > 0 {
		blob = v.Parts[0].Blob
	}
	if blob != nil {
		if err := t.checkBlob(blob); err != nil {
			return err
		}
	}
	cur, exists, err := t.current(t.c.Key)
	if err != nil {
		return err
	}
	if err := t.c.Precondition.check(exists, cur.ETag); err != nil {
		return err
	}
	if exists {
		if err := t.removeVersion(cur); err != nil {
			return err
		}
	}
	v.Inline = len(t.c.Body) > 0
	if v.Inline {
		if err := t.rw.Set(t.k.byID(tagBody, v.ID), t.c.Body); err != nil {
			return err
		}
	}
	if err := t.writeVersion(v, exists, cur.ModTime); err != nil {
		return err
	}
	if blob != nil {
		return t.addBlob(blob, refRow{Key: t.c.Key, Version: v.ID, Seq: v.Seq})
	}
	return nil
}

// writeVersion makes v the key's current version: it settles sequence number and ModTime and writes l/, v/ and m/ rows.
func (t *txn) writeVersion(v *Version, replaces bool, prev int64) error {
	t.sp.Seq++
	t.dirty = true
	v.Key, v.Seq, v.ModTime = t.c.Key, t.sp.Seq, t.modTime(replaces, prev)
	t.buf = appendVersionRow(t.buf[:0], v)
	if err := t.rw.Set(t.k.version(v.Key, v.Seq), t.buf); err != nil {
		return err
	}
	if len(v.Parts) > chunkParts {
		n := uint16(0)
		for chunk := range slices.Chunk(v.Parts, chunkParts) {
			t.buf = appendPartsRow(t.buf[:0], chunk)
			if err := t.rw.Set(t.k.numbered(tagParts, v.ID, n), t.buf); err != nil {
				return err
			}
			n++
		}
	}
	cur := currentOf(v)
	t.buf = cur.append(t.buf[:0])
	if err := t.rw.Set(t.k.current(v.Key), t.buf); err != nil {
		return err
	}
	t.res.Version, t.res.Seq, t.res.ModTime, t.res.ETag = v.ID, v.Seq, v.ModTime, v.ETag
	return nil
}

// removeVersion removes the v/, d/ and m/ rows of the command's key's current version and turns its blobs into
// garbage. The caller replaces or removes the l/ row.
func (t *txn) removeVersion(cur currentRow) error {
	if cur.Inline {
		if err := t.rw.Delete(t.k.byID(tagBody, cur.Version)); err != nil {
			return err
		}
	}
	if cur.Blobs {
		v, err := t.version(t.c.Key, cur.Seq)
		if err != nil {
			return err
		}
		for i := range v.Parts {
			if x := v.Parts[i].Blob; x != nil {
				if err := t.dropBlob(x, t.c.Key); err != nil {
					return err
				}
			}
		}
		if len(v.Parts) > chunkParts {
			for n := range uint16((len(v.Parts) + chunkParts - 1) / chunkParts) {
				if err := t.rw.Delete(t.k.numbered(tagParts, v.ID, n)); err != nil {
					return err
				}
			}
		}
	}
	return t.rw.Delete(t.k.version(t.c.Key, cur.Seq))
}

func (t *txn) delete() error {
	cur, exists, err := t.current(t.c.Key)
	if err != nil {
		return err
	}
	if err := t.c.Precondition.check(exists, cur.ETag); err != nil || !exists {
		return err
	}
	if err := t.removeVersion(cur); err != nil {
		return err
	}
	t.res.Version = cur.Version
	return t.rw.Delete(t.k.current(t.c.Key))
}
