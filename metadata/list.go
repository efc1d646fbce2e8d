package metadata

import (
	"bytes"

	"objstore/internal/oerr"
	"objstore/metadata/host"
)

// scanList is one forward scan over l/ rows: it seeks past each common prefix instead of reading what is below it.
func (x *reader) scanList(q *Query, to *listing) (truncated bool, next string, err error) {
	if q.Max == 0 {
		return false, "", nil
	}
	head := append(bytes.Clone(x.k.prefix), tagCurrent)
	lower := append(bytes.Clone(head), q.Prefix...)
	upper := successor(lower)
	if after := q.start(head); bytes.Compare(after, lower) > 0 {
		lower = after
	}
	if bytes.Compare(lower, upper) >= 0 {
		return false, "", nil
	}
	it, err := x.r.Iter(lower, upper)
	if err != nil {
		return false, "", err
	}
	defer func() {
		if cerr := it.Close(); err == nil {
			err = cerr
		}
	}()
	delimiter := []byte(q.Delimiter)
	var last, skip []byte
	skipRest := len(q.Prefix)
	for n, ok := 0, it.Next(); ok; n++ {
		if n == q.Max {
			return true, string(last), nil
		}
		key := it.Key()[len(head):]
		if i := bytes.Index(key[min(skipRest, len(key)):], delimiter); i >= 0 && len(delimiter) > 0 {
			last = append(last[:0], key[:skipRest+i+len(delimiter)]...)
			to.prefix(last)
			if skip = nextAfter(append(append(skip[:0], head...), last...)); bytes.Compare(skip, upper) >= 0 {
				return false, "", nil
			}
			ok = it.SeekGE(skip)
			continue
		}
		last = append(last[:0], key...)
		if err := to.entry(key, it.Value()); err != nil {
			return false, "", err
		}
		ok = it.Next()
	}
	return false, "", nil
}

// start returns the row key from which a listing after q.After goes on. When After lies in a common prefix, that prefix
// is not greater than After, so all below it is left out: it was given before.
func (q *Query) start(head []byte) []byte {
	if q.After == "" {
		return nil
	}
	b := append(bytes.Clone(head), q.After...)
	if q.Delimiter != "" && len(q.After) > len(q.Prefix) && q.After[:len(q.Prefix)] == q.Prefix {
		rest := b[len(head)+len(q.Prefix):]
		if i := bytes.Index(rest, []byte(q.Delimiter)); i >= 0 {
			return nextAfter(b[:len(head)+len(q.Prefix)+i+len(q.Delimiter)])
		}
	}
	return append(b, 0)
}

// nextAfter is successor in place.
func nextAfter(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == 0xff {
		b = b[:len(b)-1]
	}
	if len(b) > 0 {
		b[len(b)-1]++
	}
	return b
}

// listing writes entries and prefixes as Answer.Append does: all prefixes come after all entries, so they wait.
type listing struct {
	b                 []byte
	prefixBytes       []byte
	entries, prefixes int
}

func (l *listing) entry(key, row []byte) error {
	if len(row) < minCurrentRow || row[0] != rowVersion {
		return oerr.Errorf(rowOp, oerr.Corrupt, "l row of %d bytes, expected at least %d of version %d", len(row), minCurrentRow, rowVersion)
	}
	l.b = appendEntry(l.b, key, row)
	l.entries++
	return nil
}

func (l *listing) prefix(p []byte) {
	l.prefixBytes = appendBytes(l.prefixBytes, p)
	l.prefixes++
}

// askList appends the encoded answer to buf: rows are copied as they are, none is decoded.
func askList(r host.Reader, q *Query, buf []byte) ([]byte, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	x, err := openSpan(r, q)
	if err != nil {
		return nil, err
	}
	l := &listing{b: append(buf, answerVersion, 0)} // no body
	at := len(l.b)
	l.b = append(l.b, make([]byte, countsSize)...)
	var rest Answer
	if rest.Truncated, rest.Next, err = x.scanList(q, l); err != nil {
		return nil, err
	}
	putCounts(l.b[at:], l.entries, l.prefixes)
	return rest.appendRest(append(l.b, l.prefixBytes...)), nil
}

// bytesPerEntry is a guess at an entry's encoding, to begin with a buffer that seldom grows.
const bytesPerEntry = 128

// decodedList asks for a listing by way of its encoding: that takes a handful of allocations instead of two for each
// key.
func decodedList(r host.Reader, q *Query) (*Answer, error) {
	b, err := askList(r, q, make([]byte, 0, 64+bytesPerEntry*max(q.Max, 0)))
	if err != nil {
		return nil, err
	}
	a, err := DecodeAnswer(b)
	if err != nil {
		return nil, oerr.E(askOp, oerr.Corrupt, err)
	}
	return a, nil
}
