// Package authtest signs requests for tests. It is a second implementation of Signature Version 4, written plainly from
// the specification and sharing nothing with s3/auth, so that each checks the other.
package authtest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
	"time"
)

// Signer signs with one credential.
type Signer struct {
	AccessKey, Secret, Region string
	Now                       time.Time
	Skip                      []string // x-amz-* headers, in lower case, to leave out of the signature
}

func mac(key []byte, s string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(s))
	return h.Sum(nil)
}

// Hash is the SHA-256 in hexadecimal.
func Hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (s *Signer) iso() string { return s.Now.UTC().Format("20060102T150405Z") }

func (s *Signer) scope() string {
	return s.Now.UTC().Format("20060102") + "/" + s.Region + "/s3/aws4_request"
}

func (s *Signer) key() []byte {
	k := mac([]byte("AWS4"+s.Secret), s.Now.UTC().Format("20060102"))
	return mac(mac(mac(k, s.Region), "s3"), "aws4_request")
}

// Escape encodes everything but unreserved characters.
func Escape(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}

// CanonicalQuery sorts and encodes a raw query string.
func CanonicalQuery(raw string) string {
	type kv struct{ k, v string }
	var all []kv
	for _, part := range strings.Split(raw, "&") {
		if part == "" {
			continue
		}
		k, v, _ := strings.Cut(part, "=")
		k, err1 := url.QueryUnescape(k)
		v, err2 := url.QueryUnescape(v)
		if err1 != nil || err2 != nil || k == "X-Amz-Signature" {
			continue
		}
		all = append(all, kv{Escape(k), Escape(v)})
	}
	sort.Slice(all, func(i, j int) bool {
		if all[i].k != all[j].k {
			return all[i].k < all[j].k
		}
		return all[i].v < all[j].v
	})
	var out []string
	for _, p := range all {
		out = append(out, p.k+"="+p.v)
	}
	return strings.Join(out, "&")
}

// Canonical builds a canonical request over these headers (lower-case names).
func Canonical(r *http.Request, path, rawQuery string, signed []string, payload string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n%s\n", r.Method, path, CanonicalQuery(rawQuery))
	for _, name := range signed {
		values := r.Header.Values(name)
		if name == "host" {
			values = []string{r.Host}
		}
		var vs []string
		for _, v := range values {
			vs = append(vs, strings.Join(strings.FieldsFunc(v, func(c rune) bool { return c == ' ' }), " "))
		}
		fmt.Fprintf(&b, "%s:%s\n", name, strings.Join(vs, ","))
	}
	fmt.Fprintf(&b, "\n%s\n%s", strings.Join(signed, ";"), payload)
	return b.String()
}

func (s *Signer) signature(canonical string) string {
	sts := "AWS4-HMAC-SHA256\n" + s.iso() + "\n" + s.scope() + "\n" + Hash([]byte(canonical))
	return hex.EncodeToString(mac(s.key(), sts))
}

// Sign puts an Authorization header on r with this x-amz-content-sha256, signing host, all x-amz-* headers and extra.
// The return value is the signature.
func (s *Signer) Sign(r *http.Request, payload string, extra ...string) string {
	r.Header.Set("X-Amz-Date", s.iso())
	r.Header.Set("X-Amz-Content-Sha256", payload)
	signed := append([]string{"host"}, extra...)
	for name := range r.Header {
		if n := strings.ToLower(name); strings.HasPrefix(n, "x-amz-") && !slices.Contains(s.Skip, n) {
			signed = append(signed, n)
		}
	}
	slices.Sort(signed)
	if r.Host == "" {
		r.Host = r.URL.Host
	}
	sig := s.signature(Canonical(r, r.URL.EscapedPath(), r.URL.RawQuery, signed, payload))
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		s.AccessKey, s.scope(), strings.Join(signed, ";"), sig))
	return sig
}

// Presign puts the credential into r's query.
func (s *Signer) Presign(r *http.Request, expires time.Duration, signed ...string) {
	signed = append(signed, "host")
	slices.Sort(signed)
	q := r.URL.RawQuery
	if q != "" {
		q += "&"
	}
	q += fmt.Sprintf("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s&X-Amz-Date=%s&X-Amz-Expires=%d&X-Amz-SignedHeaders=%s",
		Escape(s.AccessKey+"/"+s.scope()), s.iso(), int(expires/time.Second), Escape(strings.Join(signed, ";")))
	if r.Host == "" {
		r.Host = r.URL.Host
	}
	sig := s.signature(Canonical(r, r.URL.EscapedPath(), q, signed, "UNSIGNED-PAYLOAD"))
	r.URL.RawQuery = q + "&X-Amz-Signature=" + sig
}

// Trailer is one trailing header.
type Trailer struct{ Name, Value string }

// Chunked encodes body as aws-chunked with chunks of this size; seed is the request's signature, "" for unsigned
// chunks. A nil trailers makes a body without a trailer part.
func (s *Signer) Chunked(body []byte, size int, seed string, trailers []Trailer) []byte {
	var b bytes.Buffer
	prev := seed
	chunk := func(p []byte) {
		fmt.Fprintf(&b, "%x", len(p))
		if seed != "" {
			prev = s.chain("AWS4-HMAC-SHA256-PAYLOAD", prev, Hash(nil)+"\n"+Hash(p))
			fmt.Fprintf(&b, ";chunk-signature=%s", prev)
		}
		b.WriteString("\r\n")
		if len(p) > 0 {
			b.Write(p)
			b.WriteString("\r\n")
		}
	}
	for p := body; len(p) > 0; {
		n := min(size, len(p))
		chunk(p[:n])
		p = p[n:]
	}
	chunk(nil)
	if trailers != nil {
		canonical := ""
		for _, t := range trailers {
			fmt.Fprintf(&b, "%s:%s\r\n", t.Name, t.Value)
			canonical += t.Name + ":" + t.Value + "\n"
		}
		if seed != "" {
			fmt.Fprintf(&b, "x-amz-trailer-signature:%s\r\n", s.chain("AWS4-HMAC-SHA256-TRAILER", prev, Hash([]byte(canonical))))
		}
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

func (s *Signer) chain(kind, prev, rest string) string {
	return hex.EncodeToString(mac(s.key(), kind+"\n"+s.iso()+"\n"+s.scope()+"\n"+prev+"\n"+rest))
}

// SignWithDate signs with the Date header, which must be set, in the place of x-amz-date.
func (s *Signer) SignWithDate(r *http.Request, payload string) {
	r.Header.Set("X-Amz-Content-Sha256", payload)
	signed := []string{"date", "host", "x-amz-content-sha256"}
	sig := s.signature(Canonical(r, r.URL.EscapedPath(), r.URL.RawQuery, signed, payload))
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		s.AccessKey, s.scope(), strings.Join(signed, ";"), sig))
}
