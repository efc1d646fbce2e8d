package auth

import (
	"strconv"
	"strings"
	"time"

	"objstore/s3/apierr"
)

const (
	algorithm   = "AWS4-HMAC-SHA256"
	algorithm4A = "AWS4-ECDSA-P256-SHA256"
	isoFormat   = "20060102T150405Z"
	service     = "s3"
	terminator  = "aws4_request"

	// MaxExpires is the longest life of a presigned request.
	MaxExpires = 7 * 24 * time.Hour
	// MaxAuthHeader bounds the Authorization header, in bytes.
	MaxAuthHeader = 8 << 10
)

// claim is what a request says about itself, not yet believed.
type claim struct {
	presigned bool
	accessKey string
	day       string   // of the credential's scope
	scope     string   // day/region/service/aws4_request
	signed    []string // strictly ascending lower-case names
	signedRaw string
	signature string
	iso       string // the request's time as it was signed
	at        time.Time
	expires   time.Duration // presigned only
}

// scopeOf splits AK/day/region/service/aws4_request from the right.
func (c *claim) setCredential(cred, region string, code apierr.Code) error {
	rest := cred
	var part [4]string
	for i := 3; i >= 0; i-- {
		at := strings.LastIndexByte(rest, '/')
		if at < 0 {
			return apierr.Errorf(code, "the Credential is malformed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"")
		}
		rest, part[i] = rest[:at], rest[at+1:]
	}
	switch {
	case rest == "" || len(rest) > 128:
		return apierr.Errorf(code, "the Credential has no usable access key")
	case len(part[0]) != 8:
		return apierr.Errorf(code, "incorrect date format in the Credential; expecting \"yyyyMMdd\"")
	case part[1] != region:
		return apierr.Errorf(code, "the region '%s' is wrong; expecting '%s'", part[1], region).With("Region", region)
	case part[2] != service:
		return apierr.Errorf(code, "incorrect service in the Credential; expecting \"s3\"")
	case part[3] != terminator:
		return apierr.Errorf(code, "incorrect terminal in the Credential; expecting \"aws4_request\"")
	}
	c.accessKey, c.day, c.scope = rest, part[0], cred[len(rest)+1:]
	return nil
}

// setSigned takes the list of signed headers: lower case, strictly ascending (no name twice), with host among them.
func (c *claim) setSigned(raw string, code apierr.Code) error {
	c.signedRaw = raw
	c.signed = make([]string, 0, strings.Count(raw, ";")+1)
	host, last := false, ""
	for name := range strings.SplitSeq(raw, ";") {
		if name <= last || !isLowerToken(name) {
			return apierr.Errorf(code, "SignedHeaders must be lower-case names in ascending order, each once")
		}
		last = name
		host = host || name == "host"
		c.signed = append(c.signed, name)
	}
	if !host {
		return apierr.Errorf(apierr.AccessDenied, "the host header must be among the signed headers").With("HeadersNotSigned", "host")
	}
	return nil
}

func isLowerToken(s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', strings.IndexByte("-_.!#$%&'*+^`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

func (c *claim) setTime(iso string, code apierr.Code) error {
	at, err := time.Parse(isoFormat, iso)
	if err != nil {
		return apierr.Errorf(code, "the date must be in ISO 8601 basic format, for example 20130524T000000Z")
	}
	c.iso, c.at = iso, at
	if c.day != iso[:8] {
		return apierr.Errorf(code, "invalid credential date %q: it is not the day of the request's date %q", c.day, iso[:8])
	}
	return nil
}

// parseHeader reads "AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…".
func parseHeader(v, region string) (*claim, error) {
	const code = apierr.AuthorizationHeaderMalformed
	if len(v) > MaxAuthHeader {
		return nil, apierr.Errorf(code, "the Authorization header is longer than %d bytes", MaxAuthHeader)
	}
	scheme, rest, _ := strings.Cut(v, " ")
	switch scheme {
	case algorithm:
	case algorithm4A:
		return nil, apierr.Errorf(apierr.NotImplemented, "%s (Signature Version 4A) is not implemented", algorithm4A)
	case "AWS": // Signature Version 2
		return nil, apierr.Errorf(apierr.InvalidRequest, "The authorization mechanism you have provided (Signature Version 2) is not supported. Please use AWS4-HMAC-SHA256.")
	default:
		return nil, apierr.Errorf(apierr.InvalidArgument, "Unsupported Authorization Type")
	}
	var field [3]string // Credential, SignedHeaders, Signature
	for part := range strings.SplitSeq(rest, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		i := -1
		switch name {
		case "Credential":
			i = 0
		case "SignedHeaders":
			i = 1
		case "Signature":
			i = 2
		}
		if !ok || i < 0 || field[i] != "" || value == "" {
			return nil, apierr.Errorf(code, "the Authorization header needs Credential, SignedHeaders and Signature, each once")
		}
		field[i] = value
	}
	if field[0] == "" || field[1] == "" || field[2] == "" {
		return nil, apierr.Errorf(code, "the Authorization header needs Credential, SignedHeaders and Signature, each once")
	}
	c := &claim{signature: field[2]}
	if len(c.signature) != 64 || !isLowerHex(c.signature) {
		return nil, apierr.Errorf(code, "the Signature must be 64 lower-case hexadecimal digits")
	}
	if err := c.setCredential(field[0], region, code); err != nil {
		return nil, err
	}
	return c, c.setSigned(field[1], code)
}

// presignedParams are the query parameters that carry a presigned request's credential.
var presignedParams = [...]string{"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature"}

// parseQuery reads a presigned request's parameters, each exactly once.
func parseQuery(q Query, region string) (*claim, error) {
	const code = apierr.AuthorizationQueryParametersError
	for _, name := range presignedParams {
		if q.count(name) != 1 {
			return nil, apierr.Errorf(code, "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters, each once.")
		}
	}
	switch q.Get("X-Amz-Algorithm") {
	case algorithm:
	case algorithm4A:
		return nil, apierr.Errorf(apierr.NotImplemented, "%s (Signature Version 4A) is not implemented", algorithm4A)
	default:
		return nil, apierr.Errorf(code, "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"")
	}
	c := &claim{presigned: true, signature: q.Get("X-Amz-Signature")}
	if len(c.signature) != 64 || !isLowerHex(c.signature) {
		return nil, apierr.Errorf(code, "X-Amz-Signature must be 64 lower-case hexadecimal digits")
	}
	secs, err := strconv.ParseInt(q.Get("X-Amz-Expires"), 10, 64)
	switch {
	case err != nil:
		return nil, apierr.Errorf(code, "X-Amz-Expires should be a number")
	case secs < 1:
		return nil, apierr.Errorf(code, "X-Amz-Expires must be at least 1 second")
	case secs > int64(MaxExpires/time.Second):
		return nil, apierr.Errorf(code, "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds")
	}
	c.expires = time.Duration(secs) * time.Second
	if err := c.setCredential(q.Get("X-Amz-Credential"), region, code); err != nil {
		return nil, err
	}
	if err := c.setTime(q.Get("X-Amz-Date"), code); err != nil {
		return nil, err
	}
	return c, c.setSigned(q.Get("X-Amz-SignedHeaders"), code)
}
