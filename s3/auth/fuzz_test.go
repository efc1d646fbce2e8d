package auth

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"objstore/s3/auth/authtest"
)

func FuzzAuthorizationHeader(f *testing.F) {
	r := newRequest("GET", "http://h.example/b/k")
	exampleSigner().Sign(r, EmptySHA256)
	f.Add(r.Header.Get("Authorization"))
	f.Add("AWS AKID:sig")
	f.Add("AWS4-HMAC-SHA256 Credential=////,SignedHeaders=;,Signature=")
	f.Fuzz(func(t *testing.T, h string) {
		c, err := parseHeader(h, "us-east-1")
		if err != nil {
			return
		}
		if c.accessKey == "" || len(c.signature) != 64 || len(c.signed) == 0 || !strings.HasSuffix(c.scope, "/us-east-1/s3/aws4_request") {
			t.Fatalf("accepted %q as %+v", h, c)
		}
		if strings.Join(c.signed, ";") != c.signedRaw {
			t.Fatalf("signed headers %q became %q", c.signedRaw, c.signed)
		}
	})
}

// The canonical request is compared with that of authtest, which was written on its own.
func FuzzCanonicalRequest(f *testing.F) {
	f.Add("GET", "/b/k", "prefix=a&max-keys=2&a-b=1&a=&b", "v  v", "x")
	f.Add("PUT", "/b/%28%29//..", "uploads", " a ", "UNSIGNED-PAYLOAD")
	f.Add("GET", "/", "a=1&a=0&a%20=2&a+=3&A=%2b%25", "", "")
	f.Fuzz(func(t *testing.T, method, path, query, value, payload string) {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(value, "\t\r\n") || strings.Trim(value, " ") != strings.TrimSpace(value) {
			return
		}
		if _, err := url.QueryUnescape(query); err != nil {
			return
		}
		q, err := ParseQuery(query)
		if err != nil {
			return
		}
		for _, p := range q {
			if p.Name == "X-Amz-Signature" {
				return
			}
		}
		r := &http.Request{Method: method, Host: "h.example", Header: http.Header{"X-Amz-Meta-A": {value, "second"}, "Range": {"bytes=0-9"}}}
		c := &claim{signed: []string{"host", "range", "x-amz-meta-a"}, signedRaw: "host;range;x-amz-meta-a"}
		got, found := c.canonical(nil, r, path, q, payload, false)
		want := authtest.Canonical(r, path, query, c.signed, payload)
		if string(got) != want {
			t.Fatalf("canonical request\n%q\nexpected\n%q", got, want)
		}
		if found != 1 {
			t.Fatalf("found %d x-amz headers", found)
		}
	})
}

func FuzzNormalPath(f *testing.F) {
	f.Add("/a(b)")
	f.Add("/a%2Fb%2f%7e")
	f.Fuzz(func(t *testing.T, path string) {
		before, ok := Unescape(path, false)
		if !ok || path == "" {
			return
		}
		normal := string(appendPath(nil, path, true))
		after, ok := Unescape(normal, false)
		if !ok || after != before {
			t.Fatalf("%q names %q, its normal form %q names %q", path, before, normal, after)
		}
		if again := string(appendPath(nil, normal, true)); again != normal {
			t.Fatalf("the normal form of %q is %q", normal, again)
		}
	})
}
