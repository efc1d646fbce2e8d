package sigv4

import (
	"testing"
	"time"
)

// TestTheDocumentedExampleSignsTheSame uses the GET Bucket (List Objects) example of the S3 documentation, which signs
// exactly the three headers that Signer signs.
func TestTheDocumentedExampleSignsTheSame(t *testing.T) {
	s := New("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1", "s3")
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	date, auth := s.Sign(at, Request{Method: "GET", Host: "examplebucket.s3.amazonaws.com", Path: "/", Query: "max-keys=2&prefix=J", Hash: EmptyPayload})
	want := "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request," +
		"SignedHeaders=host;x-amz-content-sha256;x-amz-date," +
		"Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
	if date != "20130524T000000Z" || auth != want {
		t.Errorf("date %s\n got %s\nwant %s", date, auth, want)
	}
}

func TestTheKeyFollowsTheDay(t *testing.T) {
	s := New("a", "b", "us-east-1", "s3")
	day := time.Date(2026, 1, 1, 23, 59, 59, 0, time.UTC)
	r := Request{Method: "GET", Host: "h", Path: "/", Hash: EmptyPayload}
	_, first := s.Sign(day, r)
	_, next := s.Sign(day.Add(time.Second), r)
	_, fresh := New("a", "b", "us-east-1", "s3").Sign(day.Add(time.Second), r)
	if first == next || next != fresh {
		t.Errorf("signatures: %s, %s, %s", first, next, fresh)
	}
}

func TestEscaping(t *testing.T) {
	for in, want := range map[string]string{"/a b/ü+%~": "/a%20b/%C3%BC%2B%25~", "plain/x-1_2.3": "plain/x-1_2.3"} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
	if got := EscapeQuery("a/b=c&d"); got != "a%2Fb%3Dc%26d" {
		t.Errorf("EscapeQuery = %q", got)
	}
}

func BenchmarkSign(b *testing.B) {
	s := New("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1", "s3")
	now := time.Now()
	for b.Loop() {
		s.Sign(now, Request{Method: "GET", Host: "127.0.0.1:9000", Path: "/bucket/key", Hash: EmptyPayload})
	}
}
