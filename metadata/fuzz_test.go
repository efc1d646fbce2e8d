package metadata

import (
	"bytes"
	"testing"
)

// The encoding is canonical: whatever decodes must encode to the same bytes. That finds a field that is read but not
// written, and any input that has two meanings.

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range append(samples(1, 120), oneOfEach()...) {
		f.Add(c.Append(nil))
	}
	m := NewMachine()
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCommand(b)
		if err == nil && !bytes.Equal(c.Append(nil), b) {
			t.Fatalf("%x decodes, but encodes to %x", b, c.Append(nil))
		}
		// Whatever is proposed, apply answers it.
		store := newMemStore()
		mustApply(t, m, store, 1, (&Command{Op: OpCreateSpan, RequestID: testID('R', 0), Bucket: testID('b', 1),
			Span: &Span{Bucket: testID('b', 1), Generation: 7}}).Append(nil))
		mustApply(t, m, store, 2, m.Stamp(b, 1))
	})
}

func FuzzDecodeResult(f *testing.F) {
	f.Add(bigResult().Append(nil))
	f.Add((&Result{}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := DecodeResult(b); err == nil && !bytes.Equal(r.Append(nil), b) {
			t.Fatalf("%x decodes, but encodes to %x", b, r.Append(nil))
		}
	})
}

func FuzzDecodeQuery(f *testing.F) {
	f.Add(bigQuery().Append(nil))
	f.Add((&Query{Op: QuerySpans}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := DecodeQuery(b)
		if err != nil {
			return
		}
		if !bytes.Equal(q.Append(nil), b) {
			t.Fatalf("%x decodes, but encodes to %x", b, q.Append(nil))
		}
		store := newMemStore()
		q.Bucket, q.Generation = testID('b', 1), 7
		mustApply(t, NewMachine(), store, 1, (&Command{Op: OpCreateSpan, RequestID: testID('R', 0), Bucket: q.Bucket,
			Span: &Span{Bucket: q.Bucket, Generation: 7}}).Append(nil))
		if _, err := Ask(store, q); err != nil {
			return
		}
		if _, err := AskEncoded(store, q, nil); err != nil {
			t.Fatalf("answered directly, but not encoded: %v", err)
		}
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	f.Add(bigAnswer().Append(nil))
	f.Add((&Answer{}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeAnswer(b)
		if err != nil {
			return
		}
		// An entry's row has more than the entry: compare once through the encoding.
		c, err := DecodeAnswer(a.Append(nil))
		if err != nil || !bytes.Equal(c.Append(nil), a.Append(nil)) {
			t.Fatalf("%x decodes, but not after it is encoded again: %v", b, err)
		}
	})
}

func FuzzDecodeRows(f *testing.F) {
	a := bigAnswer()
	cur := currentOf(a.Version)
	f.Add(cur.append(nil))
	f.Add(appendVersionRow(nil, a.Version))
	f.Add(appendPartsRow(nil, a.Parts))
	f.Add(appendPartRow(nil, &a.Parts[0]))
	f.Add(appendUploadRow(nil, a.Upload))
	f.Add(appendGarbageRow(nil, &a.Garbage[0]))
	ref, ref2 := refRow{Key: "k", Version: testID('V', 1), Seq: 3}, refRow{Key: "k", UploadID: testID('U', 1), Part: 2}
	f.Add(ref.append(nil))
	f.Add(ref2.append(nil))
	f.Add(repairState{Created: 1, Checked: true}.append(nil))
	sp := spanState{Span: a.Spans[0], Pending: 1}
	f.Add(sp.append(nil))
	f.Add(appendKeyPart(nil, "a\x00b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		same := func(name string, err error, again func() []byte) {
			if err == nil && !bytes.Equal(again(), b) {
				t.Fatalf("%s row %x decodes, but encodes to %x", name, b, again())
			}
		}
		cur, err := decodeCurrent(b)
		same("l", err, func() []byte { return cur.append(nil) })
		v, chunked, err := decodeVersionRow(b, "")
		if chunked == 0 && len(v.Parts) <= chunkParts && v.Key == "" {
			same("v", err, func() []byte { return appendVersionRow(nil, &v) })
		}
		parts, err := decodePartsRow(b)
		same("m", err, func() []byte { return appendPartsRow(nil, parts) })
		p, err := decodePartRow(b)
		same("p", err, func() []byte { return appendPartRow(nil, &p) })
		u, err := decodeUploadRow(b)
		same("u", err, func() []byte { return appendUploadRow(nil, &u) })
		g, err := decodeGarbageRow(b)
		same("g", err, func() []byte { return appendGarbageRow(nil, &g) })
		ref, err := decodeRef(b)
		same("b", err, func() []byte { return ref.append(nil) })
		st, err := decodeRepairState(b)
		same("r", err, func() []byte { return st.append(nil) })
		if sp, err := decodeSpanState(b); err == nil {
			same("s", err, func() []byte { return sp.append(nil) })
		}
		if key, rest, err := splitKeyPart(b); err == nil {
			same("key", nil, func() []byte { return append(appendKeyPart(nil, key), rest...) })
		}
		if bucket, start, rest, err := splitSpanPrefix(b); err == nil {
			same("prefix", nil, func() []byte { return append(spanPrefix(bucket, start), rest...) })
		}
	})
}
