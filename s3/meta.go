package s3

import (
	"net/http"
	"slices"
	"strings"

	"objstore/metadata"
	"objstore/s3/apierr"
)

const (
	metaPrefix         = "X-Amz-Meta-"
	defaultContentType = "binary/octet-stream"
)

// systemHeaders are stored with an object and returned unchanged.
var systemHeaders = [...]string{"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type", "Expires"}

// storedHeaders collects what a request wants kept with its object. It is never nil: nil means something else to Copy.
func storedHeaders(h http.Header) ([]metadata.Pair, error) {
	pairs := make([]metadata.Pair, 0, 4)
	total := 0
	for _, name := range systemHeaders {
		v := h[name]
		if v == nil {
			continue
		}
		value := strings.Join(v, ", ")
		if name == "Content-Encoding" {
			value = dropAWSChunked(value)
		}
		if value == "" || name == "Content-Type" && value == defaultContentType {
			continue
		}
		total += len(name) + len(value)
		pairs = append(pairs, metadata.Pair{Name: name, Value: value})
	}
	pairs, user := userMeta(pairs, h)
	if user > metadata.MaxUserMeta {
		return nil, apierr.New(apierr.MetadataTooLarge).With("Size", itoa(int64(user))).With("MaxSizeAllowed", itoa(metadata.MaxUserMeta))
	}
	if total+user > metadata.MaxHeaders {
		return nil, apierr.Errorf(apierr.MetadataTooLarge, "The headers to be stored exceed %d bytes.", metadata.MaxHeaders)
	}
	return pairs, nil
}

// userMeta appends the x-amz-meta-* headers in order of their names, and returns S3's measure of their size: names
// without the prefix, and values.
func userMeta(pairs []metadata.Pair, h http.Header) ([]metadata.Pair, int) {
	first, size := len(pairs), 0
	for name, values := range h {
		if len(name) <= len(metaPrefix) || !strings.HasPrefix(name, metaPrefix) {
			continue
		}
		p := metadata.Pair{Name: strings.ToLower(name), Value: strings.Join(values, ",")}
		size += len(name) - len(metaPrefix) + len(p.Value)
		pairs = append(pairs, p)
	}
	slices.SortFunc(pairs[first:], func(a, b metadata.Pair) int { return strings.Compare(a.Name, b.Name) })
	return pairs, size
}

// dropAWSChunked removes the transfer form from a Content-Encoding: it says how the body came, not what it is.
func dropAWSChunked(v string) string {
	if !strings.Contains(strings.ToLower(v), "aws-chunked") {
		return v
	}
	var keep []string
	for part := range strings.SplitSeq(v, ",") {
		if part = strings.TrimSpace(part); part != "" && !strings.EqualFold(part, "aws-chunked") {
			keep = append(keep, part)
		}
	}
	return strings.Join(keep, ", ")
}

// setStored puts an object's stored headers on the answer.
func setStored(w *responseWriter, pairs []metadata.Pair) {
	h := w.Header()
	h["Content-Type"] = contentTypeDefault
	for _, p := range pairs {
		h[p.Name] = []string{p.Value}
	}
}

var contentTypeDefault = []string{defaultContentType}

// override applies the response-* parameters, which only a signed request may bring; every request here is signed.
func (q *request) override() error {
	for _, o := range [...][2]string{
		{"response-content-type", "Content-Type"}, {"response-content-language", "Content-Language"},
		{"response-expires", "Expires"}, {"response-cache-control", "Cache-Control"},
		{"response-content-disposition", "Content-Disposition"}, {"response-content-encoding", "Content-Encoding"},
	} {
		if !q.query.Has(o[0]) {
			continue
		}
		v := q.query.Get(o[0])
		for i := 0; i < len(v); i++ {
			if v[i] < ' ' && v[i] != '\t' || v[i] == 0x7f {
				return apierr.Errorf(apierr.InvalidArgument, "%s holds a control character.", o[0]).With("ArgumentName", o[0])
			}
		}
		q.w.set(o[1], v)
	}
	return nil
}
