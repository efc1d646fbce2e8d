package s3

import (
	"net/http"
	"strings"

	"objstore/s3/apierr"
	"objstore/s3/auth"
)

// route is a row of the table, made ready for matching.
type route struct {
	operation
	need  []string
	known []string // parameters it understands, the needed ones included
}

// router chooses the operation of a request. It is read-only once made.
type router struct {
	rows [numLevels]map[string][]*route
	subs map[string]bool // every sub-resource of the table
}

func newRouter(ops []operation) *router {
	r := &router{subs: map[string]bool{}}
	for i := range r.rows {
		r.rows[i] = map[string][]*route{}
	}
	for _, op := range ops {
		row := &route{operation: op, need: strings.Fields(op.query)}
		row.known = append(strings.Fields(op.params), row.need...)
		for _, s := range row.need {
			r.subs[s] = true
		}
		r.rows[op.level][op.method] = append(r.rows[op.level][op.method], row)
	}
	return r
}

// match returns the operation, or nil when the table has none.
func (r *router) match(lv level, method string, q auth.Query, h http.Header) *route {
	for _, row := range r.rows[lv][method] {
		if row.matches(q, h) {
			return row
		}
	}
	return nil
}

func (row *route) matches(q auth.Query, h http.Header) bool {
	for _, s := range row.need {
		if !q.Has(s) {
			return false
		}
	}
	return row.header == "" || h[row.header] != nil
}

// checkParams refuses a parameter that the operation does not understand: what is accepted is enforced. Parameters of
// the credential were dealt with, x-id names the operation, and "x-…" (but not x-amz-…) is the client's own, as on AWS.
func (r *router) checkParams(row *route, q auth.Query) error {
	for i, p := range q {
		switch {
		case auth.IsAuthParam(p.Name), isOwnParam(p.Name):
			continue
		case !contains(row.known, p.Name):
			return apierr.Errorf(apierr.NotImplemented, "The query parameter %q is not implemented for %s.", printable(p.Name), row.name)
		}
		for _, earlier := range q[:i] {
			if earlier.Name == p.Name {
				return apierr.Errorf(apierr.InvalidArgument, "The query parameter %q is given twice.", p.Name).With("ArgumentName", p.Name)
			}
		}
	}
	return nil
}

func isOwnParam(name string) bool {
	return len(name) > 2 && (name[:2] == "x-" || name[:2] == "X-") && !isAmzName(name)
}

func isAmzName(name string) bool { return len(name) > 6 && strings.EqualFold(name[:6], "x-amz-") }

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// printable shortens what a client sent before it is quoted back.
func printable(s string) string {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
