package auth

import (
	"encoding/hex"

	"objstore/s3/apierr"
)

// Mode says how a request's body is protected: the value of x-amz-content-sha256. Every switch over it is exhaustive
// and refuses by default; one forgotten mode was an advisory in another store (MinIO CVE-2026-40344).
type Mode uint8

// The modes. The zero Mode is none of them and is always refused.
const (
	Literal               Mode = iota + 1 // the SHA-256 of the body in hexadecimal
	Unsigned                              // UNSIGNED-PAYLOAD
	StreamSigned                          // STREAMING-AWS4-HMAC-SHA256-PAYLOAD
	StreamSignedTrailer                   // STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER
	StreamUnsignedTrailer                 // STREAMING-UNSIGNED-PAYLOAD-TRAILER
)

const (
	unsignedPayload = "UNSIGNED-PAYLOAD"
	// EmptySHA256 is the SHA-256 of an empty body.
	EmptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// ParseMode reads x-amz-content-sha256; the array is the body's hash when the mode is Literal.
func ParseMode(v string) (Mode, [32]byte, error) {
	var sum [32]byte
	switch v {
	case unsignedPayload:
		return Unsigned, sum, nil
	case "STREAMING-AWS4-HMAC-SHA256-PAYLOAD":
		return StreamSigned, sum, nil
	case "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER":
		return StreamSignedTrailer, sum, nil
	case "STREAMING-UNSIGNED-PAYLOAD-TRAILER":
		return StreamUnsignedTrailer, sum, nil
	case "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER":
		return 0, sum, apierr.Errorf(apierr.NotImplemented, "x-amz-content-sha256 %s (Signature Version 4A) is not implemented", v)
	}
	if len(v) == 64 && isLowerHex(v) {
		if _, err := hex.Decode(sum[:], []byte(v)); err == nil {
			return Literal, sum, nil
		}
	}
	return 0, sum, apierr.Errorf(apierr.InvalidArgument, "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, or a valid sha256 value in lower-case hexadecimal.")
}

// Streaming reports whether the body is aws-chunked. The mode decides, never Content-Encoding, which is optional.
func (m Mode) Streaming() bool {
	return m == StreamSigned || m == StreamSignedTrailer || m == StreamUnsignedTrailer
}

// Trailing reports whether trailers follow the body.
func (m Mode) Trailing() bool { return m == StreamSignedTrailer || m == StreamUnsignedTrailer }

func isLowerHex(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
