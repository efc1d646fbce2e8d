package config

import "strings"

const (
	minAccessKey, maxAccessKey = 3, 128
	minSecretKey, maxSecretKey = 8, 128
	maxRegion                  = 64
	maxDomain                  = 253
)

// within reports whether v has lo to hi bytes, all of them from set.
func within(v string, lo, hi int, set string) bool {
	ok := len(v) >= lo && len(v) <= hi
	for i := range len(v) {
		ok = ok && strings.IndexByte(set, v[i]) >= 0
	}
	return ok
}

const lowerDigits = "abcdefghijklmnopqrstuvwxyz0123456789"

func checkRegion(v string) error {
	if !within(v, 1, maxRegion, lowerDigits+"-") {
		return expected(v, "1 to 64 lower-case letters, digits and hyphens")
	}
	return nil
}

func checkDomain(v string) error {
	if !within(v, 1, maxDomain, lowerDigits+"-.") || strings.Contains(v, "..") || v[0] == '.' || v[len(v)-1] == '.' {
		return expected(v, "a domain name in lower case, such as s3.example.net")
	}
	return nil
}

// checkAccessKey keeps out what SigV4's credential scope cannot carry: "/" separates its fields.
func checkAccessKey(v string) error {
	if !within(v, minAccessKey, maxAccessKey, lowerDigits+strings.ToUpper(lowerDigits)+"-_.") {
		return expected(v, "3 to 128 letters, digits, hyphens, dots and underscores")
	}
	return nil
}

func checkSecretKey(v string) error {
	ok := len(v) >= minSecretKey && len(v) <= maxSecretKey
	for i := range len(v) {
		ok = ok && v[i] > ' ' && v[i] < 0x7f
	}
	if !ok {
		return expected("a secret", "8 to 128 printable characters without blanks")
	}
	return nil
}
