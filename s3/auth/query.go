package auth

import (
	"strings"

	"objstore/s3/apierr"
)

// MaxQueryParams bounds the parameters of one request.
const MaxQueryParams = 128

// Param is one decoded query parameter.
type Param struct{ Name, Value string }

// Query is a query string in the order of the wire. It is parsed once: the signature and the handlers see the same.
type Query []Param

// ParseQuery decodes a raw query string. '+' is a space and ';' an ordinary byte, as S3 has it; a broken escape is an
// InvalidURI.
func ParseQuery(raw string) (Query, error) {
	if raw == "" {
		return nil, nil
	}
	q := make(Query, 0, strings.Count(raw, "&")+1)
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		n, ok1 := Unescape(name, true)
		v, ok2 := Unescape(value, true)
		if !ok1 || !ok2 {
			return nil, apierr.Errorf(apierr.InvalidURI, "the query string has a broken escape")
		}
		if len(q) == MaxQueryParams {
			return nil, apierr.Errorf(apierr.InvalidURI, "the query string has more than %d parameters", MaxQueryParams)
		}
		q = append(q, Param{n, v})
	}
	return q, nil
}

// Get returns the first value of a parameter, "" when there is none.
func (q Query) Get(name string) string {
	for i := range q {
		if q[i].Name == name {
			return q[i].Value
		}
	}
	return ""
}

// Has reports whether a parameter is there, with or without a value.
func (q Query) Has(name string) bool { return q.count(name) > 0 }

func (q Query) count(name string) int {
	n := 0
	for i := range q {
		if q[i].Name == name {
			n++
		}
	}
	return n
}

// Unescape decodes %XX, and '+' as a space if plus is set. It reports false for a broken escape. A string without
// escapes is returned as it is.
func Unescape(s string, plus bool) (string, bool) {
	i := 0
	for i < len(s) && s[i] != '%' && !(plus && s[i] == '+') {
		i++
	}
	if i == len(s) {
		return s, true
	}
	b := make([]byte, i, len(s))
	copy(b, s)
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%':
			if i+2 >= len(s) {
				return "", false
			}
			hi, lo := unhex(s[i+1]), unhex(s[i+2])
			if hi > 15 || lo > 15 {
				return "", false
			}
			b = append(b, hi<<4|lo)
			i += 2
		case c == '+' && plus:
			b = append(b, ' ')
		default:
			b = append(b, c)
		}
	}
	return string(b), true
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

const upperHex = "0123456789ABCDEF"

// AppendEscaped appends s as Signature Version 4 and encoding-type=url have it: everything but A–Z a–z 0–9 - . _ ~ as
// %XX in upper case, and '/' too unless keepSlash.
func AppendEscaped(b []byte, s string, keepSlash bool) []byte {
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if unreserved(c) || c == '/' && keepSlash {
			continue
		}
		b = append(b, s[start:i]...)
		b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		start = i + 1
	}
	return append(b, s[start:]...)
}

// The unreserved characters of RFC 3986 as bit sets: bytes below 64, and from 64 to 127.
const (
	plainLow  = 1<<'-' | 1<<'.' | (1<<10-1)<<'0'
	plainHigh = (1<<26-1)<<('A'-64) | (1<<26-1)<<('a'-64) | 1<<('_'-64) | 1<<('~'-64)
)

func unreserved(c byte) bool {
	if c < 64 {
		return uint64(plainLow)>>c&1 != 0
	}
	return c < 128 && uint64(plainHigh)>>(c-64)&1 != 0
}
