package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"objstore/s3/apierr"
)

// MaxSkew is how far a request's time may be from the server's, either way.
const MaxSkew = 15 * time.Minute

// Lookup finds the secret of an access key. ok is false only when the key is known not to exist; when that cannot be
// found out it returns an error, and the request is answered 503, never 403.
type Lookup func(ctx context.Context, accessKey string) (secret string, ok bool, err error)

// Config is what a Verifier needs.
type Config struct {
	Region string
	Lookup Lookup
	Now    func() time.Time // the clock; nil is time.Now
}

// Verifier checks signatures. It is safe for concurrent use.
type Verifier struct {
	region string
	lookup Lookup
	now    func() time.Time
	keys   keyCache
}

// New makes a Verifier.
func New(cfg Config) (*Verifier, error) {
	if cfg.Region == "" || cfg.Lookup == nil {
		return nil, errors.New("s3/auth: Region and Lookup must be set")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Verifier{region: cfg.Region, lookup: cfg.Lookup, now: cfg.Now, keys: keyCache{region: cfg.Region}}, nil
}

// Grant says that a request is authentic, and how its body is protected.
type Grant struct {
	AccessKey string
	Presigned bool
	Mode      Mode
	SHA256    [32]byte // of the body, when Mode is Literal

	key       [32]byte
	iso       string
	scope     string
	signature [64]byte // seed of the chunk signatures
}

// Verify checks a request. path is the path as it is on the wire, q its parsed query. Every error is an *apierr.Error.
func (v *Verifier) Verify(ctx context.Context, r *http.Request, path string, q Query) (*Grant, error) {
	c, payload, err := v.claim(r, q)
	if err != nil {
		return nil, err
	}
	g := &Grant{AccessKey: c.accessKey, Presigned: c.presigned, iso: c.iso, scope: c.scope}
	if g.Mode, g.SHA256, err = ParseMode(payload); err != nil {
		return nil, err
	}
	if c.presigned && g.Mode.Streaming() {
		return nil, apierr.Errorf(apierr.InvalidRequest, "a presigned request cannot have x-amz-content-sha256 %s", payload)
	}
	if err := c.fresh(v.now()); err != nil {
		return nil, err
	}
	secret, ok, err := v.lookup(ctx, c.accessKey)
	switch {
	case err != nil:
		return nil, &apierr.Error{Code: apierr.ServiceUnavailable, Err: err}
	case !ok || secret == "":
		return nil, apierr.New(apierr.InvalidAccessKeyID).With("AWSAccessKeyId", c.accessKey)
	}
	g.key = v.keys.get(c.accessKey, secret, c.day)
	return g, c.check(g, r, path, q, payload)
}

// claim reads what the request says of itself, from the header or from the query, never from both.
func (v *Verifier) claim(r *http.Request, q Query) (*claim, string, error) {
	header := r.Header["Authorization"]
	query := q.Has("X-Amz-Algorithm") || q.Has("X-Amz-Credential") || q.Has("X-Amz-Signature")
	v2 := q.Has("Signature") || q.Has("AWSAccessKeyId")
	switch {
	case len(header) > 1 || len(header) == 1 && (query || v2) || query && v2:
		return nil, "", apierr.Errorf(apierr.InvalidArgument, "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string parameter or the Authorization header should be specified")
	case v2:
		return nil, "", apierr.Errorf(apierr.InvalidRequest, "The authorization mechanism you have provided (Signature Version 2) is not supported. Please use AWS4-HMAC-SHA256.")
	case len(header) == 0 && !query:
		return nil, "", apierr.New(apierr.AccessDenied)
	case r.Header["X-Amz-Security-Token"] != nil || q.Has("X-Amz-Security-Token"):
		return nil, "", apierr.New(apierr.InvalidToken)
	case len(r.Header["X-Amz-Content-Sha256"]) > 1 || len(r.Header["X-Amz-Date"]) > 1:
		return nil, "", apierr.Errorf(apierr.InvalidArgument, "x-amz-content-sha256 and x-amz-date may be given once")
	case query:
		c, err := parseQuery(q, v.region)
		return c, presignedPayload(r, q), err
	}
	c, err := parseHeader(header[0], v.region)
	if err != nil {
		return nil, "", err
	}
	payload := r.Header.Get("X-Amz-Content-Sha256")
	if payload == "" {
		return nil, "", apierr.Errorf(apierr.InvalidRequest, "Missing required header for this request: x-amz-content-sha256")
	}
	iso, err := headerTime(r.Header)
	if err != nil {
		return nil, "", err
	}
	return c, payload, c.setTime(iso, apierr.AuthorizationHeaderMalformed)
}

// presignedPayload is UNSIGNED-PAYLOAD unless the signer said otherwise; a header that says so must be signed, which
// the rule on x-amz-* headers sees to.
func presignedPayload(r *http.Request, q Query) string {
	if v := r.Header.Get("X-Amz-Content-Sha256"); v != "" {
		return v
	}
	if v := q.Get("X-Amz-Content-Sha256"); v != "" {
		return v
	}
	return unsignedPayload
}

// headerTime is x-amz-date, else Date.
func headerTime(h http.Header) (string, error) {
	if v := h.Get("X-Amz-Date"); v != "" {
		return v, nil
	}
	at, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return "", apierr.Errorf(apierr.AccessDenied, "AWS authentication requires a valid Date or x-amz-date header")
	}
	return at.UTC().Format(isoFormat), nil
}

// fresh checks the request's time.
func (c *claim) fresh(now time.Time) error {
	if c.presigned {
		switch {
		case now.Before(c.at.Add(-MaxSkew)):
			return apierr.Errorf(apierr.AccessDenied, "Request is not valid yet").
				With("X-Amz-Date", c.iso).With("ServerTime", now.UTC().Format(time.RFC3339))
		case now.After(c.at.Add(c.expires)):
			return apierr.Errorf(apierr.AccessDenied, "Request has expired").
				With("Expires", c.at.Add(c.expires).Format(time.RFC3339)).With("ServerTime", now.UTC().Format(time.RFC3339))
		}
		return nil
	}
	if d := now.Sub(c.at); d > MaxSkew || d < -MaxSkew {
		return apierr.New(apierr.RequestTimeTooSkewed).
			With("RequestTime", c.iso).With("ServerTime", now.UTC().Format(time.RFC3339)).
			With("MaxAllowedSkewMilliseconds", "900000")
	}
	return nil
}

// check compares the signature, over the path as it came and, if that differs, over its normal form. Both name the
// same key, so trying two grants nothing that one would not.
func (c *claim) check(g *Grant, r *http.Request, path string, q Query, payload string) error {
	buf := scratch.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= maxScratch {
			scratch.Put(buf)
		}
	}()
	wire, found := c.canonical((*buf)[:0], r, path, q, payload, false)
	*buf = wire[:0]
	if err := checkSigned(r.Header, c.signed, found); err != nil {
		return err
	}
	if g.matches(wire, c.signature) {
		return nil
	}
	if normal := appendPath(nil, path, true); string(normal) != path {
		again, _ := c.canonical((*buf)[:0], r, path, q, payload, true)
		if g.matches(again, c.signature) {
			return nil
		}
	}
	return apierr.New(apierr.SignatureDoesNotMatch).With("AWSAccessKeyId", c.accessKey).
		With("SignatureProvided", c.signature)
}

func (g *Grant) matches(canonical []byte, signature string) bool {
	sum := sha256.Sum256(canonical)
	var stack [256]byte
	s := append(stack[:0], algorithm+"\n"...)
	s = append(s, g.iso...)
	s = append(s, '\n')
	s = append(s, g.scope...)
	s = append(s, '\n')
	s = hex.AppendEncode(s, sum[:])
	g.signature = signHex(&g.key, s)
	return subtle.ConstantTimeCompare(g.signature[:], []byte(signature)) == 1
}

// IsAuthParam reports whether a query parameter belongs to the presigned credential, so that no handler sees it.
func IsAuthParam(name string) bool {
	if !strings.HasPrefix(name, "X-Amz-") {
		return false
	}
	switch name {
	case "X-Amz-Security-Token", "X-Amz-Content-Sha256":
		return true
	}
	for _, p := range presignedParams {
		if name == p {
			return true
		}
	}
	return false
}
