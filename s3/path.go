package s3

import (
	"net"
	"strings"
	"unicode/utf8"

	"objstore/metadata"
	"objstore/s3/apierr"
	"objstore/s3/auth"
)

// target is what a request is about: the service ("" bucket), a bucket ("" key) or an object.
type target struct{ bucket, key string }

func (t target) level() level {
	switch {
	case t.bucket == "":
		return onService
	case t.key == "":
		return onBucket
	}
	return onObject
}

// parseTarget reads the path as it is on the wire, still escaped. It only takes it apart; checkNames judges the names.
func parseTarget(path, host, domain string) (target, error) {
	if path == "" || path[0] != '/' {
		return target{}, apierr.New(apierr.InvalidURI)
	}
	if bucket := virtualBucket(host, domain); bucket != "" {
		key, ok := auth.Unescape(path[1:], false)
		if !ok {
			return target{}, apierr.New(apierr.InvalidURI)
		}
		return target{bucket, key}, nil
	}
	return splitName(path[1:])
}

// splitName takes "bucket/key" apart at the first slash and decodes both. It is the one parser for paths and copy
// sources; nothing in a key is special: "..", "//", "+" and a decoded "%2F" are bytes of its name.
func splitName(s string) (target, error) {
	bucket, key, _ := strings.Cut(s, "/")
	b, ok1 := auth.Unescape(bucket, false)
	k, ok2 := auth.Unescape(key, false)
	if !ok1 || !ok2 {
		return target{}, apierr.New(apierr.InvalidURI)
	}
	return target{b, k}, nil
}

// virtualBucket is the bucket in a virtual-host style Host header.
func virtualBucket(host, domain string) string {
	if domain == "" {
		return ""
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if len(host) <= len(domain)+1 || !strings.EqualFold(host[len(host)-len(domain):], domain) || host[len(host)-len(domain)-1] != '.' {
		return ""
	}
	return strings.ToLower(host[:len(host)-len(domain)-1])
}

// checkNames judges a target's names.
func (t target) checkNames() error {
	if t.bucket != "" && !validBucket(t.bucket) {
		return apierr.New(apierr.InvalidBucketName)
	}
	return checkKey(t.key)
}

func checkKey(key string) error {
	if len(key) > metadata.MaxKeyLen {
		return apierr.New(apierr.KeyTooLong).With("Size", itoa(int64(len(key)))).With("MaxSizeAllowed", itoa(metadata.MaxKeyLen))
	}
	if !utf8.ValidString(key) {
		return apierr.Errorf(apierr.InvalidURI, "The key is not valid UTF-8.")
	}
	return nil
}

// validBucket follows https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
func validBucket(name string) bool {
	if len(name) < 3 || len(name) > 63 {
		return false
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '-' && i > 0 && i < len(name)-1:
		case c == '.' && i > 0 && i < len(name)-1 && name[i-1] != '.':
		default:
			return false
		}
	}
	for _, p := range [...]string{"xn--", "sthree-", "amzn-s3-demo-"} {
		if strings.HasPrefix(name, p) {
			return false
		}
	}
	for _, s := range [...]string{"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"} {
		if strings.HasSuffix(name, s) {
			return false
		}
	}
	return net.ParseIP(name) == nil
}
