package auth

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"objstore/s3/apierr"
	"objstore/s3/auth/authtest"
)

// The credential and time of AWS's published examples.
const (
	exampleKey    = "AKIAIOSFODNN7EXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)

var exampleTime = time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)

func exampleLookup(_ context.Context, key string) (string, bool, error) {
	switch key {
	case exampleKey:
		return exampleSecret, true, nil
	case "UNKNOWABLE":
		return "", false, errors.New("no quorum")
	}
	return "", false, nil
}

func exampleVerifier(t testing.TB, now time.Time) *Verifier {
	v, err := New(Config{Region: "us-east-1", Lookup: exampleLookup, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func exampleSigner() *authtest.Signer {
	return &authtest.Signer{AccessKey: exampleKey, Secret: exampleSecret, Region: "us-east-1", Now: exampleTime}
}

// parse reads a request as net/http's server would.
func parse(t testing.TB, raw string) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.ReplaceAll(raw, "\n", "\r\n"))))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func verify(v *Verifier, r *http.Request) (*Grant, error) {
	path, raw := r.URL.EscapedPath(), r.URL.RawQuery
	if r.RequestURI != "" {
		path, raw, _ = strings.Cut(r.RequestURI, "?")
	}
	q, err := ParseQuery(raw)
	if err != nil {
		return nil, err
	}
	return v.Verify(context.Background(), r, path, q)
}

const credential = "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"

// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html and sigv4-query-string-auth.html
var published = []struct{ name, request string }{
	{"GET object with a range", "GET /test.txt HTTP/1.1\nHost: examplebucket.s3.amazonaws.com\nRange: bytes=0-9\nx-amz-content-sha256: " + EmptySHA256 + "\nx-amz-date: 20130524T000000Z\n" +
		"Authorization: AWS4-HMAC-SHA256 " + credential + ",SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41\n\n"},
	{"PUT object", "PUT /test$file.text HTTP/1.1\nHost: examplebucket.s3.amazonaws.com\nContent-Length: 0\nDate: Fri, 24 May 2013 00:00:00 GMT\nx-amz-date: 20130524T000000Z\nx-amz-storage-class: REDUCED_REDUNDANCY\nx-amz-content-sha256: 44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072\n" +
		"Authorization: AWS4-HMAC-SHA256 " + credential + ",SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd\n\n"},
	{"GET bucket lifecycle", "GET /?lifecycle HTTP/1.1\nHost: examplebucket.s3.amazonaws.com\nx-amz-date: 20130524T000000Z\nx-amz-content-sha256: " + EmptySHA256 + "\n" +
		"Authorization: AWS4-HMAC-SHA256 " + credential + ",SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543\n\n"},
	{"GET bucket (list)", "GET /?max-keys=2&prefix=J HTTP/1.1\nHost: examplebucket.s3.amazonaws.com\nx-amz-date: 20130524T000000Z\nx-amz-content-sha256: " + EmptySHA256 + "\n" +
		"Authorization: AWS4-HMAC-SHA256 " + credential + ",SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7\n\n"},
	{"presigned GET", "GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404 HTTP/1.1\nHost: examplebucket.s3.amazonaws.com\n\n"},
}

func TestAWSPublishedExamplesVerify(t *testing.T) {
	v := exampleVerifier(t, exampleTime)
	for _, tc := range published {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := verify(v, parse(t, tc.request)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestEachPublishedExampleFailsWithOneBitChanged(t *testing.T) {
	v := exampleVerifier(t, exampleTime)
	for _, tc := range published {
		for what, change := range map[string]func(r *http.Request){
			"method": func(r *http.Request) { r.Method = "POST" },
			"host":   func(r *http.Request) { r.Host = "evil.s3.amazonaws.com" },
			"path":   func(r *http.Request) { r.RequestURI = "/x" + r.RequestURI },
			"query": func(r *http.Request) {
				if strings.Contains(r.RequestURI, "?") {
					r.RequestURI += "&a=b"
				} else {
					r.RequestURI += "?a=b"
				}
			},
		} {
			r := parse(t, tc.request)
			change(r)
			if _, err := verify(v, r); code(err) != "SignatureDoesNotMatch" {
				t.Errorf("%s with another %s: %v", tc.name, what, err)
			}
		}
	}
}

func code(err error) string {
	var e *apierr.Error
	if errors.As(err, &e) {
		return e.Code.String()
	}
	return fmt.Sprint(err)
}

func newRequest(method, url string) *http.Request {
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		panic(err)
	}
	return r
}

func TestRefusals(t *testing.T) {
	edit := func(f func(r *http.Request)) func(r *http.Request) { return f }
	auth := func(from, to string) func(r *http.Request) {
		return func(r *http.Request) {
			h := r.Header.Get("Authorization")
			if !strings.Contains(h, from) {
				panic(from)
			}
			r.Header.Set("Authorization", strings.ReplaceAll(h, from, to))
		}
	}
	cases := []struct {
		name string
		edit func(r *http.Request)
		want string
	}{
		{"no credential", edit(func(r *http.Request) { r.Header.Del("Authorization") }), "AccessDenied"},
		{"an added x-amz header", edit(func(r *http.Request) { r.Header.Set("X-Amz-Copy-Source", "/b/k") }), "AccessDenied"},
		{"a removed signed header", edit(func(r *http.Request) { r.Header.Del("X-Amz-Meta-A") }), "SignatureDoesNotMatch"},
		{"a second value of a signed header", edit(func(r *http.Request) { r.Header.Add("X-Amz-Meta-A", "2") }), "SignatureDoesNotMatch"},
		{"two Authorization headers", edit(func(r *http.Request) { r.Header.Add("Authorization", "x") }), "InvalidArgument"},
		{"header and query", edit(func(r *http.Request) { r.URL.RawQuery = "X-Amz-Signature=0" }), "InvalidArgument"},
		{"header and version 2 query", edit(func(r *http.Request) { r.URL.RawQuery = "Signature=0" }), "InvalidArgument"},
		{"version 2 header", edit(func(r *http.Request) { r.Header.Set("Authorization", "AWS AKID:c2ln") }), "InvalidRequest"},
		{"version 4A", auth("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"), "NotImplemented"},
		{"Basic", edit(func(r *http.Request) { r.Header.Set("Authorization", "Basic eDp5") }), "InvalidArgument"},
		{"two Credentials", auth("SignedHeaders", "Credential=a/20130524/us-east-1/s3/aws4_request, SignedHeaders"), "AuthorizationHeaderMalformed"},
		{"no Signature", auth(", Signature=", ", "), "AuthorizationHeaderMalformed"},
		{"an unknown field", auth("SignedHeaders", "X=y, SignedHeaders"), "AuthorizationHeaderMalformed"},
		{"another region", auth("us-east-1", "eu-west-1"), "AuthorizationHeaderMalformed"},
		{"another service", auth("/s3/", "/ec2/"), "AuthorizationHeaderMalformed"},
		{"another terminal", auth("aws4_request", "aws5_request"), "AuthorizationHeaderMalformed"},
		{"another day", auth("20130524/", "20130523/"), "AuthorizationHeaderMalformed"},
		{"no access key", auth("Credential="+exampleKey, "Credential="), "AuthorizationHeaderMalformed"},
		{"host not signed", auth("host;", ""), "AccessDenied"},
		{"unsorted signed headers", auth("host;x-amz-content-sha256", "x-amz-content-sha256;host"), "AuthorizationHeaderMalformed"},
		{"a signed header twice", auth("host;", "host;host;"), "AuthorizationHeaderMalformed"},
		{"an upper-case signed header", auth("host;", "HOST;host;"), "AuthorizationHeaderMalformed"},
		{"an unknown key", auth(exampleKey, "AKIDNOBODY"), "InvalidAccessKeyId"},
		{"a key that cannot be looked up", auth(exampleKey, "UNKNOWABLE"), "ServiceUnavailable"},
		{"a short signature", auth("Signature=", "Signature=ab,"), "AuthorizationHeaderMalformed"},
		{"no content hash", edit(func(r *http.Request) { r.Header.Del("X-Amz-Content-Sha256") }), "InvalidRequest"},
		{"a content hash that is none", edit(func(r *http.Request) { r.Header.Set("X-Amz-Content-Sha256", "STREAMING-ROT13") }), "InvalidArgument"},
		{"an upper-case content hash", edit(func(r *http.Request) { r.Header.Set("X-Amz-Content-Sha256", strings.ToUpper(EmptySHA256)) }), "InvalidArgument"},
		{"another content hash", edit(func(r *http.Request) { r.Header.Set("X-Amz-Content-Sha256", authtest.Hash([]byte("x"))) }), "SignatureDoesNotMatch"},
		{"an ECDSA content hash", edit(func(r *http.Request) {
			r.Header.Set("X-Amz-Content-Sha256", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD")
		}), "NotImplemented"},
		{"two content hashes", edit(func(r *http.Request) { r.Header.Add("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD") }), "InvalidArgument"},
		{"no date", edit(func(r *http.Request) { r.Header.Del("X-Amz-Date") }), "AccessDenied"},
		{"a date that is none", edit(func(r *http.Request) { r.Header.Set("X-Amz-Date", "2013-05-24") }), "AuthorizationHeaderMalformed"},
		{"a session token", edit(func(r *http.Request) { r.Header.Set("X-Amz-Security-Token", "x") }), "InvalidToken"},
		{"a very long header", edit(func(r *http.Request) {
			r.Header.Set("Authorization", "AWS4-HMAC-SHA256 "+strings.Repeat("x", MaxAuthHeader))
		}), "AuthorizationHeaderMalformed"},
		{"an untouched request", edit(func(r *http.Request) {}), "<nil>"},
	}
	v := exampleVerifier(t, exampleTime)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			r := newRequest("PUT", "http://h.example/bucket/key")
			r.Header.Set("X-Amz-Meta-A", "1")
			exampleSigner().Sign(r, EmptySHA256)
			tc.edit(r)
			if _, err := verify(v, r); code(err) != tc.want {
				t.Errorf("answered %v, expected %s", err, tc.want)
			}
		})
	}
}

func TestSkewIsFifteenMinutesEitherWay(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-MaxSkew: "<nil>", MaxSkew: "<nil>",
		-MaxSkew - time.Second: "RequestTimeTooSkewed", MaxSkew + time.Second: "RequestTimeTooSkewed",
	} {
		r := newRequest("GET", "http://h.example/b/k")
		exampleSigner().Sign(r, EmptySHA256)
		if _, err := verify(exampleVerifier(t, exampleTime.Add(d)), r); code(err) != want {
			t.Errorf("%v after signing: %v, expected %s", d, err, want)
		}
	}
}

func TestPresignedRequestsLiveFromTheirDateToTheirExpiry(t *testing.T) {
	for _, tc := range []struct {
		expires, after time.Duration
		want           string
	}{
		{time.Second, 0, "<nil>"}, {time.Second, 2 * time.Second, "AccessDenied"},
		{MaxExpires, MaxExpires - time.Second, "<nil>"}, {MaxExpires + time.Second, 0, "AuthorizationQueryParametersError"},
		{0, 0, "AuthorizationQueryParametersError"}, {-time.Second, 0, "AuthorizationQueryParametersError"},
		{time.Hour, -MaxSkew - time.Second, "AccessDenied"}, {time.Hour, -MaxSkew, "<nil>"},
	} {
		r := newRequest("GET", "http://h.example/b/k")
		exampleSigner().Presign(r, tc.expires)
		if _, err := verify(exampleVerifier(t, exampleTime.Add(tc.after)), r); code(err) != tc.want {
			t.Errorf("expires %v, used after %v: %v, expected %s", tc.expires, tc.after, err, tc.want)
		}
	}
}

func TestPresignedRefusals(t *testing.T) {
	v := exampleVerifier(t, exampleTime)
	for _, tc := range []struct {
		name, from, to, want string
	}{
		{"twice the same parameter", "X-Amz-Expires=60", "X-Amz-Expires=60&X-Amz-Expires=61", "AuthorizationQueryParametersError"},
		{"no expiry", "X-Amz-Expires=60", "a=b", "AuthorizationQueryParametersError"},
		{"another algorithm", "AWS4-HMAC-SHA256", "AWS4-ROT13", "AuthorizationQueryParametersError"},
		{"version 4A", "AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", "NotImplemented"},
		{"an expiry that is no number", "Expires=60", "Expires=6x", "AuthorizationQueryParametersError"},
		{"a longer expiry than was signed", "Expires=60", "Expires=61", "SignatureDoesNotMatch"},
		{"an added parameter", "prefix=a", "prefix=a&delimiter=b", "SignatureDoesNotMatch"},
		{"host not signed", "SignedHeaders=host", "SignedHeaders=range", "AccessDenied"},
		{"a streaming body", "prefix=a", "X-Amz-Content-Sha256=STREAMING-UNSIGNED-PAYLOAD-TRAILER", "InvalidRequest"},
		{"too many parameters", "prefix=a", strings.Repeat("a&", MaxQueryParams), "InvalidURI"},
		{"version 2 beside it", "prefix=a", "prefix=a&Signature=x", "InvalidArgument"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRequest("GET", "http://h.example/b/k?prefix=a")
			exampleSigner().Presign(r, time.Minute)
			r.URL.RawQuery = strings.Replace(r.URL.RawQuery, tc.from, tc.to, 1)
			if _, err := verify(v, r); code(err) != tc.want {
				t.Errorf("answered %v, expected %s", err, tc.want)
			}
		})
	}
	r := newRequest("GET", "http://h.example/b/k")
	exampleSigner().Presign(r, time.Minute)
	r.Header.Set("X-Amz-Meta-X", "1")
	if _, err := verify(v, r); code(err) != "AccessDenied" {
		t.Errorf("an unsigned x-amz header on a presigned request: %v", err)
	}
}

func TestPathsAreSignedAsTheyStandOnTheWireOrInNormalForm(t *testing.T) {
	v := exampleVerifier(t, exampleTime)
	for _, tc := range []struct{ wire, signed, want string }{
		{"/b/a//b", "/b/a//b", "<nil>"}, {"/b/../x", "/b/../x", "<nil>"}, {"/b/a%2Fb", "/b/a%2Fb", "<nil>"},
		{"/b/(x)", "/b/%28x%29", "<nil>"}, {"/b/(x)", "/b/(x)", "<nil>"}, {"/b/%7ex", "/b/~x", "<nil>"}, {"/b/a%2fb", "/b/a%2Fb", "<nil>"},
		{"/b/a%2Fb", "/b/a/b", "SignatureDoesNotMatch"}, {"/b/a+b", "/b/a%20b", "SignatureDoesNotMatch"}, {"/b/a+b", "/b/a%2Bb", "<nil>"},
		{"/b/a//b", "/b/a/b", "SignatureDoesNotMatch"}, {"/b/../x", "/x", "SignatureDoesNotMatch"},
	} {
		r := newRequest("GET", "http://h.example"+tc.signed)
		exampleSigner().Sign(r, EmptySHA256)
		r.RequestURI = tc.wire
		if _, err := verify(v, r); code(err) != tc.want {
			t.Errorf("wire %s, signed %s: %v, expected %s", tc.wire, tc.signed, err, tc.want)
		}
	}
}

func TestAChangedSecretIsNotServedFromTheKeyCache(t *testing.T) {
	secret := exampleSecret
	v, err := New(Config{Region: "us-east-1", Now: func() time.Time { return exampleTime },
		Lookup: func(context.Context, string) (string, bool, error) { return secret, true, nil }})
	if err != nil {
		t.Fatal(err)
	}
	r := newRequest("GET", "http://h.example/b/k")
	exampleSigner().Sign(r, EmptySHA256)
	if _, err := verify(v, r); err != nil {
		t.Fatal(err)
	}
	secret = "another"
	if _, err := verify(v, r); code(err) != "SignatureDoesNotMatch" {
		t.Errorf("after the secret changed: %v", err)
	}
}

func TestTheKeyCacheIsBounded(t *testing.T) {
	k := keyCache{region: "r"}
	for i := range 3 * maxKeys {
		k.get(fmt.Sprint(i), "s", "20130524")
	}
	if n := len(k.mu.keys); n > maxKeys {
		t.Errorf("the cache holds %d keys, the limit is %d", n, maxKeys)
	}
}

func TestTheDateHeaderServesWhenThereIsNoAmzDate(t *testing.T) {
	s := exampleSigner()
	r := newRequest("GET", "http://h.example/b/k")
	s.Sign(r, EmptySHA256)
	// Sign again by hand with Date in place of x-amz-date.
	r.Header.Del("X-Amz-Date")
	r.Header.Set("Date", exampleTime.Format(http.TimeFormat))
	s.SignWithDate(r, EmptySHA256)
	if _, err := verify(exampleVerifier(t, exampleTime), r); err != nil {
		t.Error(err)
	}
}

func BenchmarkVerifyHeader(b *testing.B) {
	v := exampleVerifier(b, exampleTime)
	r := parse(b, published[0].request)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verify(v, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyPresigned(b *testing.B) {
	v := exampleVerifier(b, exampleTime)
	r := parse(b, published[4].request)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verify(v, r); err != nil {
			b.Fatal(err)
		}
	}
}
