package s3

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"strconv"

	"objstore/metadata"
	"objstore/object"
	"objstore/s3/apierr"
)

// listing is what both list operations ask.
type listing struct {
	object.ListRequest
	url bool
}

// intParam reads a number; above the limit it is the limit, as AWS has it.
func (q *request) intParam(name string, low, high int) (int, error) {
	v := q.query.Get(name)
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil || n < int64(low) {
		return 0, apierr.Errorf(apierr.InvalidArgument, "Argument %s must be an integer between %d and 2147483647", name, low).
			With("ArgumentName", name).With("ArgumentValue", printable(v))
	}
	return min(int(n), high), nil
}

func (q *request) readListing() (l listing, err error) {
	l.Bucket, l.Prefix, l.Delimiter, l.Max = q.bucket, q.query.Get("prefix"), q.query.Get("delimiter"), metadata.MaxListKeys
	if q.query.Get("max-keys") != "" {
		if l.Max, err = q.intParam("max-keys", 0, metadata.MaxListKeys); err != nil {
			return l, err
		}
	}
	if l.url, err = q.encodingType(); err != nil {
		return l, err
	}
	return l, q.checkListNames("prefix", "delimiter", "marker", "start-after")
}

func (q *request) encodingType() (url bool, err error) {
	switch q.query.Get("encoding-type") {
	case "":
		return false, nil
	case "url":
		return true, nil
	}
	return false, apierr.Errorf(apierr.InvalidArgument, "Invalid Encoding Method specified in Request").With("ArgumentName", "encoding-type")
}

// checkListNames bounds the parameters that are compared with keys.
func (q *request) checkListNames(names ...string) error {
	for _, name := range names {
		if err := checkKey(q.query.Get(name)); err != nil {
			return err
		}
	}
	return nil
}

// page asks the engine; a page of no keys only asks whether the bucket is there.
func (q *request) page(l *listing) (object.ListResult, error) {
	if l.Max == 0 {
		return object.ListResult{}, q.needBucket()
	}
	return q.h.deps.Objects.List(q.ctx(), &l.ListRequest)
}

func listObjectsV2(q *request) error {
	if q.query.Get("list-type") != "2" {
		return apierr.Errorf(apierr.InvalidArgument, "Invalid List Type specified in Request").With("ArgumentName", "list-type")
	}
	l, err := q.readListing()
	if err != nil {
		return err
	}
	startAfter, token := q.query.Get("start-after"), q.query.Get("continuation-token")
	l.After = startAfter
	if q.query.Has("continuation-token") {
		if l.After, err = readToken(token); err != nil || token == "" {
			return badToken()
		}
	}
	owner, err := q.boolParam("fetch-owner")
	if err != nil {
		return err
	}
	res, err := q.page(&l)
	if err != nil {
		return err
	}
	x := newXML()
	x.url = l.url
	x.raw("<ListBucketResult" + xmlNS + ">")
	x.elem("Name", q.bucket)
	x.name("Prefix", l.Prefix)
	if startAfter != "" {
		x.name("StartAfter", startAfter)
	}
	x.opt("ContinuationToken", token)
	if res.Truncated {
		x.elem("NextContinuationToken", makeToken(res.Next))
	}
	x.int("KeyCount", int64(len(res.Entries)+len(res.Prefixes)))
	q.listBody(x, &l, &res, owner)
	return q.sendXML(http.StatusOK, x)
}

func listObjectsV1(q *request) error {
	l, err := q.readListing()
	if err != nil {
		return err
	}
	l.After = q.query.Get("marker")
	res, err := q.page(&l)
	if err != nil {
		return err
	}
	x := newXML()
	x.url = l.url
	x.raw("<ListBucketResult" + xmlNS + ">")
	x.elem("Name", q.bucket)
	x.name("Prefix", l.Prefix)
	x.name("Marker", l.After)
	if res.Truncated && l.Delimiter != "" { // without a delimiter the last key is the marker
		x.name("NextMarker", res.Next)
	}
	q.listBody(x, &l, &res, true)
	return q.sendXML(http.StatusOK, x)
}

// listBody writes what both list operations share, up to the end.
func (q *request) listBody(x *xmlBuf, l *listing, res *object.ListResult, owner bool) {
	x.int("MaxKeys", int64(l.Max))
	if l.Delimiter != "" {
		x.name("Delimiter", l.Delimiter)
	}
	if l.url {
		x.elem("EncodingType", "url")
	}
	x.bool("IsTruncated", res.Truncated)
	for i := range res.Entries {
		q.entry(x, &res.Entries[i], owner)
	}
	for _, p := range res.Prefixes {
		x.commonPrefix(p)
	}
	x.raw("</ListBucketResult>")
}

func (x *xmlBuf) commonPrefix(p string) {
	x.raw("<CommonPrefixes><Prefix>")
	x.key(p)
	x.raw("</Prefix></CommonPrefixes>")
}

func (q *request) entry(x *xmlBuf, e *metadata.Entry, owner bool) {
	x.raw("<Contents><Key>")
	x.key(e.Key)
	x.raw("</Key>")
	x.time("LastModified", e.ModTime)
	x.etag(e.ETag)
	if a := algorithmByID(e.Algorithm); a != nil {
		x.elem("ChecksumAlgorithm", a.name)
		x.elem("ChecksumType", typeName(e.Composite))
	}
	x.raw("<Size>")
	x.b = strconv.AppendInt(x.b, e.Size, 10)
	x.raw("</Size>")
	if owner {
		q.owner(x, "Owner")
	}
	x.raw("<StorageClass>STANDARD</StorageClass></Contents>")
}

func (q *request) boolParam(name string) (bool, error) {
	switch q.query.Get(name) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, apierr.Errorf(apierr.InvalidArgument, "%s must be true or false", name).With("ArgumentName", name)
}

// A continuation token is the last name given, with a checksum so that what is no token is noticed. Clients must treat
// it as opaque; the 1 is its version.
func makeToken(last string) string {
	b := make([]byte, 5, 5+len(last))
	b[0] = 1
	binary.BigEndian.PutUint32(b[1:], crc32.ChecksumIEEE([]byte(last)))
	return base64.RawURLEncoding.EncodeToString(append(b, last...))
}

// readToken returns the name in a token; "" has none.
func readToken(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	if len(token) > 2*(metadata.MaxKeyLen+5) {
		return "", badToken()
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 5 || b[0] != 1 || binary.BigEndian.Uint32(b[1:]) != crc32.ChecksumIEEE(b[5:]) {
		return "", badToken()
	}
	return string(b[5:]), nil
}

func badToken() error {
	return apierr.Errorf(apierr.InvalidArgument, "The continuation token provided is incorrect").With("ArgumentName", "continuation-token")
}
