package metadata

import (
	"bytes"

	"objstore/internal/oerr"
	"objstore/metadata/host"
)

// Ask answers q from one group's state. Errors have the kinds that a client of the S3 edge sees (NoSuchBucket for an
// unknown or sealed span, NoSuchKey, NoSuchUpload), StaleEpoch when q's span generation is not the group's, or
// Internal or Corrupt when the state could not be read: unknown is never absent.
func Ask(r host.Reader, q *Query) (*Answer, error) {
	if q.Op == QueryList {
		return decodedList(r, q)
	}
	a := &Answer{}
	if err := ask(r, q, a); err != nil {
		return nil, err
	}
	return a, nil
}

// AskEncoded appends the encoded answer of Ask to buf. A listing is copied row by row, without an Answer in between.
func AskEncoded(r host.Reader, q *Query, buf []byte) ([]byte, error) {
	if q.Op == QueryList {
		return askList(r, q, buf)
	}
	a := &Answer{}
	if err := ask(r, q, a); err != nil {
		return nil, err
	}
	return a.Append(buf), nil
}

const askOp = "metadata.ask"

func ask(r host.Reader, q *Query, a *Answer) error {
	if err := q.Validate(); err != nil {
		return err
	}
	switch q.Op {
	case QueryRepair:
		return askRepair(r, q, a)
	case QueryGarbage, QueryBlobs:
		return askRows(r, q, a)
	case QuerySpans, QueryRepairCount:
		return askSpans(r, q, a)
	}
	x, err := openSpan(r, q)
	if err != nil {
		return err
	}
	switch q.Op {
	case QueryGet:
		return x.get(q, a)
	case QueryUploads:
		return x.uploads(q, a)
	case QueryUpload:
		return x.askUpload(q, a)
	case QueryParts:
		return x.askParts(q, a)
	case QueryReferenced:
		return x.referenced(q, a)
	}
	return oerr.Errorf(askOp, oerr.InvalidArgument, "query %d is none that this package answers", q.Op)
}

// openSpan finds the span a query is about and checks its generation.
func openSpan(r host.Reader, q *Query) (*reader, error) {
	key := q.Key
	if key == "" {
		key = max(q.Prefix, q.After)
	}
	sp, err := findSpan(r, q.Bucket, key)
	switch {
	case err != nil:
		return nil, err
	case sp == nil:
		return nil, oerr.Errorf(askOp, oerr.NoSuchBucket, "bucket %s has no span for this key in this group", q.Bucket)
	case q.Generation != sp.Generation:
		return nil, oerr.Errorf(askOp, oerr.StaleEpoch, "span generation %d, expected %d", q.Generation, sp.Generation)
	case sp.Sealed:
		return nil, oerr.Errorf(askOp, oerr.NoSuchBucket, "bucket %s is being deleted", q.Bucket)
	}
	x := &reader{r: r}
	x.enter(sp)
	return x, nil
}

func (x *reader) get(q *Query, a *Answer) error {
	cur, ok, err := x.current(q.Key)
	if err != nil {
		return err
	}
	if !ok {
		return oerr.Errorf(askOp, oerr.NoSuchKey, "key %q has no current version", q.Key)
	}
	if a.Version, err = x.version(q.Key, cur.Seq); err != nil {
		return err
	}
	if !q.WithBody || !cur.Inline {
		return nil
	}
	body, ok, err := x.r.Get(x.k.byID(tagBody, cur.Version))
	if err != nil {
		return err
	}
	if !ok || int64(len(body)) != cur.Size {
		return oerr.Errorf(askOp, oerr.Corrupt, "body of key %q: read %d bytes, expected %d", q.Key, len(body), cur.Size)
	}
	a.Body = bytes.Clone(body)
	return nil
}

func (x *reader) uploads(q *Query, a *Answer) error {
	if q.Max == 0 {
		return nil
	}
	prefix := appendEscaped(append(bytes.Clone(x.k.prefix), tagUpload), q.Prefix)
	lower, upper := prefix, successor(prefix)
	if q.After != "" {
		after := bytes.Clone(x.k.upload(q.After, q.AfterUpload))
		if q.AfterUpload.IsZero() { // strictly after the key: after all its uploads
			after = successor(after[:len(after)-len(q.AfterUpload)])
		} else {
			after = append(after, 0)
		}
		if bytes.Compare(after, lower) > 0 {
			lower = after
		}
	}
	if bytes.Compare(lower, upper) >= 0 {
		return nil
	}
	return scan(x.r, lower, upper, func(_, value []byte) (bool, error) {
		if len(a.Uploads) == q.Max {
			a.Truncated, a.Next = true, a.Uploads[q.Max-1].Key
			return false, nil
		}
		u, err := decodeUploadRow(value)
		a.Uploads = append(a.Uploads, u)
		return true, err
	})
}

// askUpload also answers an upload that was completed within the last day: Done is set then.
func (x *reader) askUpload(q *Query, a *Answer) error {
	u, ok, err := x.upload(q.Key, q.UploadID)
	if err == nil && !ok {
		u, ok, err = x.done(q.Key, q.UploadID)
	}
	if err != nil {
		return err
	}
	if !ok {
		return oerr.Errorf(askOp, oerr.NoSuchUpload, "upload %s of key %q is not there", q.UploadID, q.Key)
	}
	a.Upload = &u
	return nil
}

func (x *reader) askParts(q *Query, a *Answer) error {
	u, ok, err := x.upload(q.Key, q.UploadID)
	if err != nil {
		return err
	}
	if !ok {
		return oerr.Errorf(askOp, oerr.NoSuchUpload, "upload %s of key %q is not open", q.UploadID, q.Key)
	}
	a.Upload = &u
	if q.Max == 0 || q.AfterPart >= MaxParts {
		return nil
	}
	parts, err := x.parts(q.UploadID, q.AfterPart+1, q.Max+1)
	if err != nil {
		return err
	}
	if len(parts) > q.Max {
		parts, a.Truncated = parts[:q.Max], true
	}
	a.Parts = parts
	return nil
}

func (x *reader) referenced(q *Query, a *Answer) error {
	if len(q.Blobs) == 0 {
		return nil
	}
	a.Referenced = make([]bool, len(q.Blobs))
	for i, id := range q.Blobs {
		var err error
		if a.Referenced[i], err = x.has(x.k.byID(tagBlob, id)); err != nil {
			return err
		}
	}
	return nil
}

// askSpans lists the span table, and adds up what is to be repaired.
func askSpans(r host.Reader, q *Query, a *Answer) error {
	return scanSpans(r, []byte{groupSpan}, func(sp *spanState) bool {
		if q.Op == QuerySpans {
			a.Spans = append(a.Spans, sp.Span)
		}
		a.Pending += int64(sp.Pending)
		a.Lost += int64(sp.Lost)
		return true
	})
}

// pageSize is how many rows a group-wide query gives: all it may when it does not say.
func (q *Query) pageSize() int {
	if q.Max == 0 {
		return MaxListKeys
	}
	return q.Max
}

// askRows pages through all g/ or b/ rows of the group. The cursor is the last row's key.
func askRows(r host.Reader, q *Query, a *Answer) error {
	tag := byte(tagBlob)
	if q.Op == QueryGarbage {
		tag = tagGarbage
	}
	it, err := r.Iter([]byte{groupData}, []byte{groupData + 1})
	if err != nil {
		return err
	}
	x := &reader{r: r}
	last, n := []byte(q.After), 0
	var rowErr error
	err = scanSpans(r, []byte{groupSpan}, func(sp *spanState) bool {
		x.enter(sp)
		lower, upper := x.k.bounds(tag)
		if bytes.Compare(upper, last) <= 0 || tag == tagGarbage && sp.Garbage == 0 {
			return true
		}
		if bytes.Compare(lower, last) < 0 {
			lower = append(bytes.Clone(last), 0)
		}
		for ok := it.SeekGE(lower); ok && bytes.Compare(it.Key(), upper) < 0; ok = it.Next() {
			if n == q.pageSize() {
				a.Truncated, a.Next = true, string(last)
				return false
			}
			n++
			last = append(last[:0], it.Key()...)
			if rowErr = x.addRow(a, tag, it.Key(), it.Value()); rowErr != nil {
				return false
			}
		}
		return true
	})
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = rowErr
	}
	return err
}

func (x *reader) addRow(a *Answer, tag byte, key, value []byte) error {
	if tag == tagGarbage {
		g, err := decodeGarbageRow(value)
		a.Garbage = append(a.Garbage, g)
		return err
	}
	id, err := trailingID(key, 0)
	if err != nil {
		return err
	}
	ref, err := decodeRef(value)
	if err != nil {
		return err
	}
	at, err := x.find(id, ref)
	if err != nil {
		return err
	}
	a.Blobs = append(a.Blobs, BlobRef{Blob: *at.part.Blob, Bucket: x.sp.Bucket, Key: ref.Key, Version: ref.Version,
		Part: ref.Part, UploadID: ref.UploadID})
	return nil
}

// askRepair pages through all r/ rows of the group, the most urgent priority of all spans first, lost rows last. The
// cursor is the priority and the last row's key.
func askRepair(r host.Reader, q *Query, a *Answer) error {
	type position struct {
		sp   *spanState
		next int // lowest priority from the cursor on that the span may have rows of
	}
	from, last := 0, []byte(nil)
	if len(q.After) > 0 {
		from, last = int(q.After[0]), []byte(q.After[1:])
	}
	var spans []position
	err := scanSpans(r, []byte{groupSpan}, func(sp *spanState) bool {
		if sp.Pending+sp.Lost > 0 {
			spans = append(spans, position{sp, from})
		}
		return true
	})
	if err != nil || len(spans) == 0 {
		return err
	}
	it, err := r.Iter([]byte{groupData}, []byte{groupData + 1})
	if err != nil {
		return err
	}
	err = func() error {
		x := &reader{r: r}
		for level := from; level <= lostPriority; {
			following := lostPriority + 1
			for i := range spans {
				s := &spans[i]
				if s.next == level {
					x.enter(s.sp)
					if s.next, err = x.repairLevel(it, q, a, level, &last); err != nil || a.Truncated {
						return err
					}
				}
				following = min(following, s.next)
			}
			level, last = following, nil
		}
		return nil
	}()
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return err
}

// repairLevel adds one span's r/ rows of one priority after *last and returns the span's next priority.
func (x *reader) repairLevel(it host.Iterator, q *Query, a *Answer, level int, last *[]byte) (next int, err error) {
	none := lostPriority + 1
	_, end := x.k.bounds(tagRepair)
	lower, upper := x.k.bounds(tagRepair, byte(level))
	ok := false
	switch {
	case bytes.Compare(upper, *last) <= 0:
		ok = it.SeekGE(upper)
	case bytes.Compare(lower, *last) < 0:
		ok = it.SeekGE(append(bytes.Clone(*last), 0))
	default:
		ok = it.SeekGE(lower)
	}
	for ; ok && bytes.Compare(it.Key(), upper) < 0; ok = it.Next() {
		if len(a.Repairs) == q.pageSize() {
			a.Truncated, a.Next = true, string(append([]byte{byte(level)}, *last...))
			return level, nil
		}
		*last = append((*last)[:0:0], it.Key()...)
		row, err := x.repairRow(it.Key(), it.Value())
		if err != nil {
			return none, err
		}
		a.Repairs = append(a.Repairs, row)
	}
	if !ok || bytes.Compare(it.Key(), end) >= 0 {
		return none, nil
	}
	return int(it.Key()[len(x.k.prefix)+1]), nil
}

func (x *reader) repairRow(key, value []byte) (row RepairRow, err error) {
	id, err := trailingID(key, 1)
	if err != nil {
		return row, err
	}
	st, err := decodeRepairState(value)
	if err != nil {
		return row, err
	}
	ref, ok, err := x.ref(id)
	if err != nil {
		return row, err
	}
	if !ok {
		return row, oerr.Errorf(askOp, oerr.Corrupt, "r row of blob %s, which nothing references", id)
	}
	at, err := x.find(id, ref)
	if err != nil {
		return row, err
	}
	p := key[len(x.k.prefix)+1]
	row = RepairRow{Blob: *at.part.Blob, Index: key[len(key)-1], Bucket: x.sp.Bucket, Key: ref.Key, Version: ref.Version,
		Part: ref.Part, UploadID: ref.UploadID, Priority: p, Created: st.Created, Checked: st.Checked}
	if p == lostPriority {
		row.Lost, row.Priority = true, priority(&row.Blob, row.Blob.Missing)
	}
	return row, nil
}

// trailingID reads the identifier that stands before the last n bytes of a row key.
func trailingID(key []byte, n int) (id [16]byte, err error) {
	if len(key) < len(id)+n {
		return id, oerr.Errorf("metadata.key", oerr.Corrupt, "row key of %d bytes, expected at least %d", len(key), len(id)+n)
	}
	copy(id[:], key[len(key)-n-len(id):])
	return id, nil
}
