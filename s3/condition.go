package s3

import (
	"net/http"
	"strings"
	"time"

	"objstore/metadata"
	"objstore/s3/apierr"
)

// maxETags bounds the list in one If-Match or If-None-Match.
const maxETags = 64

// parseETags reads a list of ETags, quoted or not; anyone is "*". A weak one keeps its W/ so that it matches no stored
// ETag, which are all strong.
func parseETags(name string, values []string) (anyone bool, tags []string, err error) {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			t = strings.TrimSpace(t)
			if t == "*" {
				anyone = true
				continue
			}
			if len(t) >= 2 && t[0] == '"' && t[len(t)-1] == '"' {
				t = t[1 : len(t)-1]
			}
			tags = append(tags, t)
		}
	}
	if len(tags) > maxETags || anyone && len(tags) > 0 {
		return false, nil, apierr.Errorf(apierr.InvalidArgument, "%s must be * or up to %d ETags.", name, maxETags)
	}
	return anyone, tags, nil
}

// precondition reads If-Match and If-None-Match of a write; they are decided in the commit, not here.
func precondition(h http.Header) (metadata.Precondition, error) {
	var p metadata.Precondition
	if v := h["If-Match"]; v != nil {
		anyone, tags, err := parseETags("If-Match", v)
		if err != nil {
			return p, err
		}
		if p.IfMatch = tags; anyone {
			p.IfMatch = []string{"*"}
		}
	}
	if v := h["If-None-Match"]; v != nil {
		var err error
		if p.IfNoneMatchAny, p.IfNoneMatch, err = parseETags("If-None-Match", v); err != nil {
			return p, err
		}
		for i, t := range p.IfNoneMatch { // compared weakly (RFC 9110 §13.1.2)
			p.IfNoneMatch[i] = strings.Trim(strings.TrimPrefix(t, "W/"), `"`)
		}
	}
	return p, nil
}

// conditions are the four headers of a conditional read.
type conditions struct {
	match, noneMatch          []string
	modifiedSince, unmodified string
}

func readConditions(h http.Header) conditions {
	return conditions{h["If-Match"], h["If-None-Match"], h.Get("If-Modified-Since"), h.Get("If-Unmodified-Since")}
}

func copyConditions(h http.Header) conditions {
	return conditions{h["X-Amz-Copy-Source-If-Match"], h["X-Amz-Copy-Source-If-None-Match"],
		h.Get("X-Amz-Copy-Source-If-Modified-Since"), h.Get("X-Amz-Copy-Source-If-Unmodified-Since")}
}

// check judges a version: If-Match before If-Unmodified-Since, If-None-Match before If-Modified-Since (RFC 9110 §13.2.2,
// and AWS's "considerations" on GetObject). For a copy, what would be 304 is 412.
func (c *conditions) check(v *metadata.Version, isCopy bool) error {
	if c.match != nil {
		ok, err := anyMatches("If-Match", c.match, v.ETag, false)
		if err != nil {
			return err
		}
		if !ok {
			return apierr.New(apierr.PreconditionFailed).With("Condition", "If-Match")
		}
	} else if t, ok := parseDate(c.unmodified); ok && seconds(v.ModTime).After(t) {
		return apierr.New(apierr.PreconditionFailed).With("Condition", "If-Unmodified-Since")
	}
	unchanged := apierr.NotModified
	if isCopy {
		unchanged = apierr.PreconditionFailed
	}
	if c.noneMatch != nil {
		hit, err := anyMatches("If-None-Match", c.noneMatch, v.ETag, true)
		if err != nil {
			return err
		}
		if hit {
			return apierr.New(unchanged).With("Condition", "If-None-Match")
		}
	} else if t, ok := parseDate(c.modifiedSince); ok && !seconds(v.ModTime).After(t) {
		return apierr.New(unchanged).With("Condition", "If-Modified-Since")
	}
	return nil
}

// parseDate reads an HTTP date; what is none is ignored, as RFC 9110 §13.1.3 has it.
func parseDate(s string) (time.Time, bool) {
	if s == "" {
		return time.Time{}, false
	}
	t, err := http.ParseTime(s)
	return t, err == nil
}

func anyMatches(name string, values []string, etag string, weak bool) (bool, error) {
	anyone, tags, err := parseETags(name, values)
	if err != nil || anyone {
		return anyone, err
	}
	for _, t := range tags {
		if weak {
			t = strings.Trim(strings.TrimPrefix(t, "W/"), `"`)
		}
		if t == etag {
			return true, nil
		}
	}
	return false, nil
}

// seconds is a modification time as HTTP shows it.
func seconds(ms int64) time.Time { return time.Unix(ms/1000, 0) }

// rangeStillValid judges If-Range: a range is honoured only for the version the client has part of.
func rangeStillValid(h http.Header, v *metadata.Version) bool {
	s := h.Get("If-Range")
	if s == "" {
		return true
	}
	if t, err := http.ParseTime(s); err == nil {
		return seconds(v.ModTime).Equal(t)
	}
	return s == `"`+v.ETag+`"` || s == v.ETag
}
