package s3

import (
	"strconv"
	"strings"

	"objstore/metadata"
	"objstore/s3/apierr"
)

// span is a run of body bytes.
type span struct{ off, n int64 }

// parseRange reads a Range header for a body of this size. ok is false when the header is to be ignored, as AWS ignores
// what is malformed and a list of several ranges; an error is 416.
func parseRange(h string, size int64) (s span, ok bool, err error) {
	spec, found := strings.CutPrefix(h, "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !found || !dash || strings.IndexByte(spec, ',') >= 0 {
		return span{}, false, nil
	}
	if first == "" {
		n, ok := parseOffset(last)
		if !ok {
			return span{}, false, nil
		}
		if n == 0 || size == 0 {
			return span{}, false, unsatisfiable(h, size)
		}
		n = min(n, size)
		return span{size - n, n}, true, nil
	}
	from, ok := parseOffset(first)
	if !ok {
		return span{}, false, nil
	}
	to := int64(1<<63 - 2)
	if last != "" {
		if to, ok = parseOffset(last); !ok || to < from {
			return span{}, false, nil
		}
	}
	if from >= size {
		return span{}, false, unsatisfiable(h, size)
	}
	to = min(to, size-1)
	return span{from, to - from + 1}, true, nil
}

// parseOffset reads a decimal without a sign; one too large for int64 is as large as can be.
func parseOffset(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 1<<63 - 2, true
	}
	return min(n, 1<<63-2), true
}

func unsatisfiable(h string, size int64) error {
	return apierr.New(apierr.InvalidRange).With("RangeRequested", printable(h)).With("ActualObjectSize", itoa(size))
}

// contentRange is the header's value.
func (s span) contentRange(size int64) string {
	return "bytes " + itoa(s.off) + "-" + itoa(s.off+s.n-1) + "/" + itoa(size)
}

// partSpan finds the bytes of part n, counted from 1. An object that was put in one piece has one part.
func partSpan(v *metadata.Version, n int) (span, error) {
	count := 1
	if v.Multipart() {
		count = len(v.Parts)
	}
	if n > count {
		return span{}, apierr.New(apierr.InvalidPartNumber).With("PartNumberRequested", itoa(int64(n))).With("ActualPartCount", itoa(int64(count)))
	}
	if !v.Multipart() {
		return span{0, v.Size}, nil
	}
	var off int64
	for i := range n - 1 {
		off += v.Parts[i].Size
	}
	return span{off, v.Parts[n-1].Size}, nil
}
