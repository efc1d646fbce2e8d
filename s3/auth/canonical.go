package auth

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"objstore/s3/apierr"
)

// scratch holds canonical requests while they are hashed; a buffer that a huge request made grow is not kept.
var scratch = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

const maxScratch = 32 << 10

// appendPath appends the canonical URI. S3 signs the path as it is on the wire, encoded once; normal says to bring
// it to the form an SDK would have written first (a client may send "(" and sign "%28").
func appendPath(b []byte, path string, normal bool) []byte {
	if path == "" {
		return append(b, '/')
	}
	if !normal {
		return append(b, path...)
	}
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch {
		case unreserved(c) || c == '/':
			b = append(b, c)
		case c == '%' && i+2 < len(path):
			d := unhex(path[i+1])<<4 | unhex(path[i+2])&15
			if unreserved(d) {
				b = append(b, d)
			} else {
				b = append(b, '%', upperHex[d>>4], upperHex[d&15])
			}
			i += 2
		default:
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return b
}

// appendQuery appends the canonical query string: encoded, then sorted by name and value, without the signature.
func appendQuery(b []byte, q Query, presigned bool) []byte {
	if len(q) == 0 {
		return b
	}
	enc := make([]string, 0, 16)
	var tmp []byte
	for _, p := range q {
		if presigned && p.Name == "X-Amz-Signature" {
			continue
		}
		tmp = AppendEscaped(tmp[:0], p.Name, false)
		// 0x01 stands for '=' while sorting: it sorts before every byte an encoded name has, so that "a" comes before
		// "a-b" as it does when names are compared alone.
		tmp = append(tmp, 1)
		tmp = AppendEscaped(tmp, p.Value, false)
		enc = append(enc, string(tmp))
	}
	slices.Sort(enc)
	for i, s := range enc {
		if i > 0 {
			b = append(b, '&')
		}
		at := strings.IndexByte(s, 1)
		b = append(b, s[:at]...)
		b = append(b, '=')
		b = append(b, s[at+1:]...)
	}
	return b
}

// appendHeaders appends the canonical headers and counts the x-amz-* ones among them that the request has.
func appendHeaders(b []byte, r *http.Request, signed []string) ([]byte, int) {
	found := 0
	var canon [64]byte
	for _, name := range signed {
		b = append(b, name...)
		b = append(b, ':')
		values := headerValues(r, name, canon[:0])
		if len(values) > 0 && strings.HasPrefix(name, "x-amz-") {
			found++
		}
		for i, v := range values {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendTrimmed(b, v)
		}
		b = append(b, '\n')
	}
	return b, found
}

// headerValues finds a header by its lower-case name; net/http keeps some of them outside the map.
func headerValues(r *http.Request, name string, canon []byte) []string {
	switch name {
	case "host":
		return []string{r.Host}
	case "transfer-encoding":
		return r.TransferEncoding
	}
	upper := true
	for i := 0; i < len(name); i++ {
		c := name[i]
		if upper && 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper = c == '-'
		canon = append(canon, c)
	}
	values := r.Header[string(canon)]
	if values == nil && name == "content-length" && r.ContentLength >= 0 {
		return []string{strconv.FormatInt(r.ContentLength, 10)}
	}
	return values
}

// appendTrimmed trims a value and makes each run of spaces one.
func appendTrimmed(b []byte, v string) []byte {
	v = strings.Trim(v, " \t\r\n")
	space := false
	for i := 0; i < len(v); i++ {
		if v[i] == ' ' {
			if space {
				continue
			}
			space = true
		} else {
			space = false
		}
		b = append(b, v[i])
	}
	return b
}

// checkSigned refuses a request with an x-amz-* header that its signature does not cover: unsigned, such a header
// changes what the signer asked for (an added x-amz-copy-source turns a PUT into a read).
func checkSigned(h http.Header, signed []string, found int) error {
	present := 0
	for name := range h {
		if isAmz(name) {
			present++
		}
	}
	if present == found {
		return nil
	}
	var missing []string
	for name := range h {
		if isAmz(name) && !slices.Contains(signed, strings.ToLower(name)) {
			missing = append(missing, strings.ToLower(name))
		}
	}
	slices.Sort(missing)
	return apierr.Errorf(apierr.AccessDenied, "There were headers present in the request which were not signed").
		With("HeadersNotSigned", strings.Join(missing, ", "))
}

func isAmz(name string) bool {
	return len(name) >= 6 && (name[:6] == "X-Amz-" || strings.EqualFold(name[:6], "x-amz-"))
}

// canonical appends the canonical request to p; payload is what stands in its last line. The number is that of the
// signed x-amz-* headers which the request has.
func (c *claim) canonical(p []byte, r *http.Request, path string, q Query, payload string, normal bool) ([]byte, int) {
	p = append(p, r.Method...)
	p = append(p, '\n')
	p = appendPath(p, path, normal)
	p = append(p, '\n')
	p = appendQuery(p, q, c.presigned)
	p = append(p, '\n')
	p, found := appendHeaders(p, r, c.signed)
	p = append(p, '\n')
	p = append(p, c.signedRaw...)
	p = append(p, '\n')
	return append(p, payload...), found
}
