// Package sigv4 signs S3 requests as a client does (AWS Signature Version 4, header form). The admin commands and the
// load generator use it; the server's side is s3/auth. It works on strings and knows no HTTP library. Source:
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strings"
	"sync"
	"time"
)

// Payload hashes with a meaning of their own.
const (
	EmptyPayload    = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
	UnsignedPayload = "UNSIGNED-PAYLOAD"
)

// SignedHeaders are the headers that Sign covers: send exactly these x-amz- headers and no other.
const SignedHeaders = "host;x-amz-content-sha256;x-amz-date"

const (
	algorithm  = "AWS4-HMAC-SHA256"
	dateFormat = "20060102"
	timeFormat = "20060102T150405Z"
)

// Signer signs for one credential, region and service. Safe for concurrent use: the day's key is derived once.
type Signer struct {
	accessKey, secret, region, service string

	mu struct {
		sync.Mutex
		date string
		key  []byte
	}
}

// New returns a signer; service is "s3" for S3 and for objstore's admin API.
func New(accessKey, secret, region, service string) *Signer {
	return &Signer{accessKey: accessKey, secret: secret, region: region, service: service}
}

// Request is what a signature covers.
type Request struct {
	Method string
	Host   string // as the Host header has it
	Path   string // as on the wire, escaped (Escape)
	Query  string // as on the wire: names sorted, names and values escaped (EscapeQuery), "" for none
	Hash   string // hex SHA-256 of the body, EmptyPayload or UnsignedPayload
}

// Sign returns the values of the X-Amz-Date and Authorization headers; X-Amz-Content-Sha256 is r.Hash.
func (s *Signer) Sign(now time.Time, r Request) (amzDate, authorization string) {
	now = now.UTC()
	amzDate = now.Format(timeFormat)
	date := amzDate[:len(dateFormat)]
	scope := date + "/" + s.region + "/" + s.service + "/aws4_request"

	canonical := r.Method + "\n" + r.Path + "\n" + r.Query + "\nhost:" + r.Host + "\nx-amz-content-sha256:" + r.Hash +
		"\nx-amz-date:" + amzDate + "\n\n" + SignedHeaders + "\n" + r.Hash
	sum := sha256.Sum256([]byte(canonical))
	toSign := algorithm + "\n" + amzDate + "\n" + scope + "\n" + hex.EncodeToString(sum[:])

	mac := mac(s.signingKey(date), toSign)
	return amzDate, algorithm + " Credential=" + s.accessKey + "/" + scope + ",SignedHeaders=" + SignedHeaders +
		",Signature=" + hex.EncodeToString(mac)
}

func (s *Signer) signingKey(date string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.date != date {
		key := mac([]byte("AWS4"+s.secret), date)
		for _, part := range []string{s.region, s.service, "aws4_request"} {
			key = mac(key, part)
		}
		s.mu.date, s.mu.key = date, key
	}
	return s.mu.key
}

func mac(key []byte, data string) []byte {
	h := hmac.New(func() hash.Hash { return sha256.New() }, key)
	h.Write([]byte(data))
	return h.Sum(nil)
}

// Escape escapes a path as S3 does: every byte but A–Z a–z 0–9 - . _ ~ and the slash.
func Escape(path string) string { return escape(path, true) }

// EscapeQuery escapes a query name or value: as Escape, and the slash too.
func EscapeQuery(s string) string { return escape(s, false) }

func escape(s string, slash bool) string {
	const hexDigits = "0123456789ABCDEF"
	n := 0
	for i := range len(s) {
		if !plain(s[i], slash) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2*n)
	for i := range len(s) {
		if c := s[i]; plain(c, slash) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

func plain(c byte, slash bool) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' ||
		c == '~' || slash && c == '/'
}
