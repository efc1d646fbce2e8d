package s3

import (
	"net/http"
	"strings"

	"objstore/s3/apierr"
	"objstore/s3/auth"
)

// hoist treats the x-amz-* parameters of a presigned request as the headers they stand for, as AWS does (SDKs move
// headers into the query when they presign). The query is signed as a whole. It returns the query without them.
func hoist(h http.Header, q auth.Query) (auth.Query, error) {
	var rest auth.Query
	for i, p := range q {
		if !isAmzName(p.Name) || auth.IsAuthParam(p.Name) {
			if rest != nil {
				rest = append(rest, p)
			}
			continue
		}
		if rest == nil {
			rest = append(make(auth.Query, 0, len(q)), q[:i]...)
		}
		name := http.CanonicalHeaderKey(p.Name)
		if old := h[name]; old != nil && (len(old) != 1 || old[0] != p.Value) {
			return nil, apierr.Errorf(apierr.InvalidArgument, "%s is given in the query and as a header, with different values.", printable(p.Name))
		}
		h[name] = []string{p.Value}
	}
	if rest == nil {
		return q, nil
	}
	return rest, nil
}

// checkHeaders refuses every x-amz-* header that asks for what is not built, and every one it does not know: what is
// accepted is enforced. Asking for the default is accepted.
func (q *request) checkHeaders() error {
	for name, values := range q.r.Header {
		if !isAmzName(name) {
			continue
		}
		if len(values) != 1 && !strings.HasPrefix(name, "X-Amz-Meta-") {
			return apierr.Errorf(apierr.InvalidArgument, "The header %s is given %d times.", strings.ToLower(name), len(values))
		}
		if err := q.checkHeader(name, values[0]); err != nil {
			return err
		}
	}
	for _, name := range [...]string{"If-Modified-Since", "If-Unmodified-Since"} {
		if q.r.Method != http.MethodGet && q.r.Method != http.MethodHead && q.r.Header[name] != nil {
			return notImplemented(name)
		}
	}
	return nil
}

func notImplemented(header string) error {
	return apierr.Errorf(apierr.NotImplemented, "The header %s is not implemented for this request.", strings.ToLower(header)).With("Header", strings.ToLower(header))
}

// onlyDefault accepts a header that asks for what happens anyway.
func onlyDefault(name, value string, defaults ...string) error {
	for _, d := range defaults {
		if value == d {
			return nil
		}
	}
	return apierr.Errorf(apierr.NotImplemented, "The value %q of the header %s is not implemented.", printable(value), strings.ToLower(name)).
		With("Header", strings.ToLower(name))
}

func (q *request) checkHeader(name, value string) error {
	switch name {
	case "X-Amz-Date", "X-Amz-Content-Sha256", "X-Amz-Decoded-Content-Length", "X-Amz-Trailer", "X-Amz-User-Agent",
		"X-Amz-Sdk-Checksum-Algorithm", "X-Amz-Checksum-Crc32", "X-Amz-Checksum-Crc32c", "X-Amz-Checksum-Crc64nvme",
		"X-Amz-Checksum-Sha1", "X-Amz-Checksum-Sha256", "X-Amz-Checksum-Algorithm", "X-Amz-Checksum-Type",
		"X-Amz-Mp-Object-Size":
		return nil // read by auth, the body and the handlers
	case "X-Amz-Copy-Source", "X-Amz-Copy-Source-Range", "X-Amz-Copy-Source-If-Match", "X-Amz-Copy-Source-If-None-Match",
		"X-Amz-Copy-Source-If-Modified-Since", "X-Amz-Copy-Source-If-Unmodified-Since", "X-Amz-Metadata-Directive":
		if q.op.header != "X-Amz-Copy-Source" {
			return notImplemented(name)
		}
		return nil
	case "X-Amz-Checksum-Mode":
		if value != "ENABLED" {
			return apierr.Errorf(apierr.InvalidArgument, "x-amz-checksum-mode must be ENABLED.")
		}
		return nil
	case "X-Amz-Acl":
		return onlyDefault(name, value, "private", "bucket-owner-full-control")
	case "X-Amz-Storage-Class":
		return onlyDefault(name, value, "STANDARD")
	case "X-Amz-Object-Ownership":
		return onlyDefault(name, value, "BucketOwnerEnforced")
	case "X-Amz-Bucket-Object-Lock-Enabled", "X-Amz-Bypass-Governance-Retention":
		return onlyDefault(name, strings.ToLower(value), "false")
	case "X-Amz-Tagging":
		return onlyDefault(name, value, "")
	case "X-Amz-Tagging-Directive":
		return onlyDefault(name, value, "COPY", "REPLACE") // there are no tags to copy, and new ones are refused above
	case "X-Amz-Request-Payer":
		return onlyDefault(name, value, "requester")
	case "X-Amz-Optional-Object-Attributes":
		return onlyDefault(name, value, "RestoreStatus") // no object is ever archived, so there is none to show
	case "X-Amz-Expected-Bucket-Owner", "X-Amz-Source-Expected-Bucket-Owner":
		if value != q.h.cfg.OwnerID {
			return apierr.New(apierr.AccessDenied)
		}
		return nil
	}
	if strings.HasPrefix(name, "X-Amz-Meta-") {
		return nil
	}
	return notImplemented(name)
}
