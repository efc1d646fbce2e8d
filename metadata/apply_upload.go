package metadata

import (
	"bytes"
	"encoding/binary"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

const (
	// doneKept is how long a completed upload answers repeated Completes, in milliseconds.
	doneKept = 24 * 60 * 60 * 1000
	// doneTrim is how many completed uploads one command trims; each adds at most one, so they do not pile up.
	doneTrim = 8
)

func (t *txn) noUpload() error {
	return refuse(oerr.NoSuchUpload, "upload %s of this key is not open", t.c.UploadID)
}

func (t *txn) createUpload() error {
	u := t.c.Upload
	_, open, err := t.upload(t.c.Key, u.ID)
	if err != nil {
		return err
	}
	done, err := t.has(t.k.byID(tagDone, u.ID))
	if err != nil {
		return err
	}
	if open || done {
		return refuse(oerr.Exists, "upload %s exists already", u.ID)
	}
	u.Key, u.Created = t.c.Key, t.c.Now
	t.buf = appendUploadRow(t.buf[:0], u)
	if err := t.rw.Set(t.k.upload(u.Key, u.ID), t.buf); err != nil {
		return err
	}
	t.res.ModTime = u.Created
	return t.trimDone()
}

func (t *txn) putPart() error {
	p := t.c.Part
	_, open, err := t.upload(t.c.Key, t.c.UploadID)
	if err != nil {
		return err
	}
	if !open {
		return t.noUpload()
	}
	if p.Blob != nil {
		if err := t.checkBlob(p.Blob); err != nil {
			return err
		}
	}
	row := bytes.Clone(t.k.numbered(tagPart, t.c.UploadID, p.Number))
	b, exists, err := t.r.Get(row)
	if err != nil {
		return err
	}
	var old Part
	if exists {
		if old, err = decodePartRow(b); err != nil {
			return err
		}
		if old.Blob != nil {
			if err := t.dropBlob(old.Blob, t.c.Key); err != nil {
				return err
			}
		}
	}
	p.ModTime = t.modTime(exists, old.ModTime)
	t.buf = appendPartRow(t.buf[:0], p)
	if err := t.rw.Set(row, t.buf); err != nil {
		return err
	}
	t.res.ModTime, t.res.ETag = p.ModTime, p.ETag
	if p.Blob == nil {
		return nil
	}
	return t.addBlob(p.Blob, refRow{Key: t.c.Key, Part: p.Number, UploadID: t.c.UploadID})
}

func (t *txn) abortUpload() error {
	_, open, err := t.upload(t.c.Key, t.c.UploadID)
	if err != nil {
		return err
	}
	if !open {
		return t.noUpload()
	}
	parts, err := t.parts(t.c.UploadID, 0, MaxParts)
	if err != nil {
		return err
	}
	for i := range parts {
		if x := parts[i].Blob; x != nil {
			if err := t.dropBlob(x, t.c.Key); err != nil {
				return err
			}
		}
	}
	return t.closeUpload(parts)
}

// closeUpload removes the u/ row and the p/ rows of an open upload.
func (t *txn) closeUpload(parts []Part) error {
	for i := range parts {
		if err := t.rw.Delete(t.k.numbered(tagPart, t.c.UploadID, parts[i].Number)); err != nil {
			return err
		}
	}
	return t.rw.Delete(t.k.upload(t.c.Key, t.c.UploadID))
}

func (t *txn) completeUpload() error {
	c := t.c
	u, open, err := t.upload(c.Key, c.UploadID)
	if err != nil {
		return err
	}
	if !open {
		return t.completedBefore()
	}
	parts, err := t.parts(c.UploadID, 0, MaxParts)
	if err != nil {
		return err
	}
	listed, dropped, err := c.stitch(parts)
	if err != nil {
		return err
	}
	cur, exists, err := t.current(c.Key)
	if err != nil {
		return err
	}
	if err := c.Precondition.check(exists, cur.ETag); err != nil {
		return err
	}
	if exists {
		if err := t.removeVersion(cur); err != nil {
			return err
		}
	}
	v := &Version{ID: c.Version.ID, ETag: c.ETag, Headers: u.Headers, Checksums: c.Checksums, Parts: listed}
	for i := range listed {
		v.Size += listed[i].Size
	}
	if err := t.writeVersion(v, exists, cur.ModTime); err != nil {
		return err
	}
	for i := range listed {
		if x := listed[i].Blob; x != nil {
			ref := refRow{Key: c.Key, Part: listed[i].Number, Version: v.ID, Seq: v.Seq, Pos: uint16(i)}
			if err := t.setRef(x.ID, ref); err != nil {
				return err
			}
		}
	}
	for i := range dropped {
		if x := dropped[i].Blob; x != nil {
			if err := t.dropBlob(x, c.Key); err != nil {
				return err
			}
		}
	}
	if err := t.closeUpload(parts); err != nil {
		return err
	}
	return t.leaveDone(u, v)
}

// completedBefore answers a repeated Complete: clients retry with a new request (PROTOCOLS E).
func (t *txn) completedBefore() error {
	u, ok, err := t.done(t.c.Key, t.c.UploadID)
	if err != nil {
		return err
	}
	if !ok || u.Done == nil {
		return t.noUpload()
	}
	t.res.Version, t.res.ETag, t.res.ModTime = u.Done.Version, u.Done.ETag, u.Done.At
	return nil
}

func (t *txn) leaveDone(u Upload, v *Version) error {
	u.Done = &UploadDone{Version: v.ID, ETag: v.ETag, At: t.c.Now}
	if len(v.Checksums) > 0 {
		u.Done.Checksum = &v.Checksums[0]
	}
	t.buf = appendUploadRow(t.buf[:0], &u)
	if err := t.rw.Set(t.k.byID(tagDone, u.ID), t.buf); err != nil {
		return err
	}
	if err := t.rw.Set(t.k.doneAt(t.c.Now, u.ID), nil); err != nil {
		return err
	}
	return t.trimDone()
}

// trimDone removes the oldest completed uploads that are older than a day by the command's time.
func (t *txn) trimDone() error {
	lower, upper := t.k.bounds(tagDoneAt)
	head := len(lower)
	var old [][]byte
	err := scan(t.r, lower, upper, func(key, _ []byte) (bool, error) {
		if len(key) != head+8+len(ident.ID{}) {
			return false, oerr.Errorf("metadata.key", oerr.Corrupt, "e row key of %d bytes, expected %d", len(key), head+24)
		}
		if int64(binary.BigEndian.Uint64(key[head:]))+doneKept > t.c.Now {
			return false, nil
		}
		old = append(old, bytes.Clone(key))
		return len(old) < doneTrim, nil
	})
	if err != nil {
		return err
	}
	for _, key := range old {
		if err := t.rw.Delete(key); err != nil {
			return err
		}
		if err := t.rw.Delete(t.k.byID(tagDone, ident.ID(key[head+8:]))); err != nil {
			return err
		}
	}
	return nil
}

// stitch checks the listed parts against those that were uploaded and splits them into listed and dropped.
func (c *Command) stitch(parts []Part) (listed, dropped []Part, err error) {
	for i := 1; i < len(c.Complete); i++ {
		if c.Complete[i].Number <= c.Complete[i-1].Number {
			return nil, nil, refuse(oerr.InvalidPartOrder, "part %d is listed after part %d", c.Complete[i].Number, c.Complete[i-1].Number)
		}
	}
	listed = make([]Part, 0, len(c.Complete))
	for i := range c.Complete {
		want := &c.Complete[i]
		for len(parts) > 0 && parts[0].Number < want.Number {
			dropped, parts = append(dropped, parts[0]), parts[1:]
		}
		if len(parts) == 0 || parts[0].Number != want.Number {
			return nil, nil, refuse(oerr.InvalidPart, "part %d was not uploaded", want.Number)
		}
		p := parts[0]
		parts = parts[1:]
		if p.ETag != want.ETag {
			return nil, nil, refuse(oerr.InvalidPart, "part %d has etag %q, listed with %q", p.Number, p.ETag, want.ETag)
		}
		if len(want.Checksum) > 0 && (p.Checksum == nil || !bytes.Equal(p.Checksum.Value, want.Checksum)) {
			return nil, nil, refuse(oerr.InvalidPart, "part %d has another checksum than listed", p.Number)
		}
		if i < len(c.Complete)-1 && p.Size < c.MinPartSize {
			return nil, nil, refuse(oerr.EntityTooSmall, "part %d has %d bytes, expected at least %d", p.Number, p.Size, c.MinPartSize)
		}
		listed = append(listed, p)
	}
	return listed, append(dropped, parts...), nil
}
