package metadata

import (
	"bytes"

	"objstore/internal/oerr"
)

// maxSealParts is how many parts of open uploads one entry turns into garbage. Sealing a bucket with more of them
// answers Busy, with the span sealed, and goes on when it is asked again.
const maxSealParts = 20000

func (t *txn) createSpan() error {
	s := t.c.Span
	var same *spanState
	overlap := false
	err := scanSpans(t.r, append([]byte{groupSpan}, s.Bucket[:]...), func(sp *spanState) bool {
		if sp.Start == s.Start {
			same = sp
			return false
		}
		overlap = (s.End == "" || sp.Start < s.End) && (sp.End == "" || s.Start < sp.End)
		return !overlap
	})
	switch {
	case err != nil:
		return err
	case overlap:
		return refuse(oerr.InvalidArgument, "span [%q, %q) of bucket %s overlaps another", s.Start, s.End, s.Bucket)
	case same == nil:
		t.enter(&spanState{Span: *s, TrimEpoch: t.index / dedupEpoch})
		t.dirty = true
		return nil
	}
	t.enter(same)
	switch {
	case same.Generation != s.Generation || same.End != s.End:
		return refuse(oerr.StaleEpoch, "span generation %d ending at %q, expected %d and %q", s.Generation, s.End, same.Generation, same.End)
	case same.Sealed:
		return refuse(oerr.NoSuchBucket, "bucket %s is being deleted", s.Bucket)
	}
	return nil
}

func (t *txn) setMinEpoch() error {
	if t.c.MinEpoch > t.sp.MinEpoch {
		t.sp.MinEpoch, t.dirty = t.c.MinEpoch, true
	}
	return nil
}

// sealSpan refuses every later command and query on the span, if it has no versions.
func (t *txn) sealSpan() error {
	if !t.sp.Sealed {
		for _, tag := range [2]byte{tagCurrent, tagVersion} {
			any, err := t.any(tag)
			if err != nil {
				return err
			}
			if any {
				return refuse(oerr.BucketNotEmpty, "bucket %s has objects", t.sp.Bucket)
			}
		}
		t.sp.Sealed, t.dirty = true, true
	}
	_, err := t.dropUploads()
	return err
}

func (t *txn) any(tag byte) (found bool, err error) {
	lower, upper := t.k.bounds(tag)
	err = scan(t.r, lower, upper, func(_, _ []byte) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}

// dropUploads turns the parts of open uploads into garbage; when more than one entry's worth is left it sets Busy.
func (t *txn) dropUploads() (all bool, err error) {
	type row struct {
		key  []byte
		part Part
	}
	var rows []row
	lower, upper := t.k.bounds(tagPart)
	err = scan(t.r, lower, upper, func(key, value []byte) (bool, error) {
		p, err := decodePartRow(value)
		rows = append(rows, row{bytes.Clone(key), p})
		return len(rows) <= maxSealParts, err
	})
	if err != nil {
		return false, err
	}
	all = len(rows) <= maxSealParts
	if !all {
		rows = rows[:maxSealParts]
		t.res.Code, t.res.Detail = 1+uint8(oerr.Busy), "open uploads have more parts than one entry removes: ask again"
	}
	for i := range rows {
		if x := rows[i].part.Blob; x != nil {
			ref, ok, err := t.ref(x.ID)
			if err != nil {
				return false, err
			}
			if !ok {
				return false, oerr.Errorf("metadata.seal", oerr.Corrupt, "blob %s of an open upload has no b row", x.ID)
			}
			if err := t.dropBlob(x, ref.Key); err != nil {
				return false, err
			}
		}
		if err := t.rw.Delete(rows[i].key); err != nil {
			return false, err
		}
	}
	if all {
		return true, t.rw.DeleteRange(t.k.bounds(tagUpload))
	}
	return false, nil
}

// dropSpan removes every row of a sealed span but g/ rows; the span's own row stays as long as there are any.
func (t *txn) dropSpan() error {
	if !t.sp.Sealed {
		return refuse(oerr.InvalidArgument, "bucket %s is not sealed", t.sp.Bucket)
	}
	if t.sp.Dropped {
		return nil
	}
	if all, err := t.dropUploads(); !all || err != nil {
		return err
	}
	garbage, after := t.k.bounds(tagGarbage)
	if err := t.rw.DeleteRange(bytes.Clone(t.k.prefix), garbage); err != nil {
		return err
	}
	if err := t.rw.DeleteRange(after, successor(t.k.prefix)); err != nil {
		return err
	}
	t.sp.Dropped, t.dirty = true, true
	t.gone = t.sp.Garbage == 0
	return nil
}
