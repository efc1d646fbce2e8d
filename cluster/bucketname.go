package cluster

import (
	"fmt"
	"net/netip"
	"strings"

	"objstore/internal/oerr"
)

// ValidateBucketName checks a name against the rules for general-purpose buckets (Amazon S3 User Guide, "General purpose
// bucket naming rules"): 3–63 of a–z, 0–9, '.', '-'; letter or digit at both ends; no "..", not an IPv4 address; reserved
// prefixes and suffixes are refused. ".-" and "-." are refused too: such a name is no host name.
func ValidateBucketName(name string) error {
	if why := bucketNameFault(name); why != "" {
		return oerr.Errorf("cluster.bucket_name", oerr.InvalidArgument, "bucket name %s: %s", quoteShort(name), why)
	}
	return nil
}

func bucketNameFault(name string) string {
	if len(name) < 3 || len(name) > 63 {
		return fmt.Sprintf("read %d characters, expected 3 to 63", len(name))
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c != '.' && c != '-' && !alnum(c) {
			return fmt.Sprintf("read character %q, expected lower-case letters, digits, dots and hyphens", c)
		}
	}
	if !alnum(name[0]) || !alnum(name[len(name)-1]) {
		return "must begin and end with a letter or a digit"
	}
	for _, pair := range [...]string{"..", ".-", "-."} {
		if strings.Contains(name, pair) {
			return fmt.Sprintf("must not contain %q", pair)
		}
	}
	if a, err := netip.ParseAddr(name); err == nil && a.Is4() || looksLikeIPv4(name) {
		return "must not look like an IP address"
	}
	for _, p := range [...]string{"xn--", "sthree-", "amzn-s3-demo-"} {
		if strings.HasPrefix(name, p) {
			return fmt.Sprintf("the prefix %q is reserved", p)
		}
	}
	for _, s := range [...]string{"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"} {
		if strings.HasSuffix(name, s) {
			return fmt.Sprintf("the suffix %q is reserved", s)
		}
	}
	return ""
}

func alnum(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// looksLikeIPv4 reports four runs of digits between dots, also when a run is no valid octet (256.1.1.1, 01.2.3.4).
func looksLikeIPv4(name string) bool {
	parts := strings.Split(name, ".")
	if len(parts) != 4 {
		return false
	}
	for _, p := range parts {
		if p == "" || strings.Trim(p, "0123456789") != "" {
			return false
		}
	}
	return true
}

// quoteShort quotes s for an error text, cut to a length that a log line bears.
func quoteShort(s string) string {
	const limit = 80
	if len(s) > limit {
		return fmt.Sprintf("%q… (%d bytes)", s[:limit], len(s))
	}
	return fmt.Sprintf("%q", s)
}
