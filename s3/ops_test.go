package s3

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"objstore/s3/auth/authtest"
)

func TestPathsNameKeysByteForByte(t *testing.T) {
	ts := start(t, Config{Domain: "s3.example"})
	for wire, key := range map[string]string{
		"/bucket/a+b": "a+b", "/bucket/a%2Bb": "a+b", "/bucket/a%20b": "a b", "/bucket//x": "/x", "/bucket/../y": "../y", "/bucket/x/./y": "x/./y", "/bucket/a%2Fb": "a/b",
		"/bucket/a%252Fb": "a%2Fb", "/bucket/dir/": "dir/", "/bucket/;v=1": ";v=1", "/bucket/%00nul": "\x00nul",
	} {
		r := ts.request(t, "PUT", "/", []byte(wire))
		r.URL.Opaque = wire // http.Client sends it as it is
		r.URL.Path, r.URL.RawPath = "", ""
		s := signer()
		at := *r
		u := *r.URL
		u.Opaque = ""
		u.Path, _ = unescapeForTest(wire), ""
		u.RawPath = wire
		at.URL = &u
		s.Sign(&at, authtest.Hash([]byte(wire)))
		r.Header = at.Header
		r.Host = at.Host
		if a := ts.send(t, r); a.StatusCode != 200 {
			t.Errorf("%s: %d %s", wire, a.StatusCode, a.body)
			continue
		}
		if o, err := ts.engine.get("bucket", key); err != nil || string(o.body) != wire {
			t.Errorf("%s did not store %q: %v", wire, key, err)
		}
		delete(ts.engine.buckets["bucket"].objects, key)
	}
}

func unescapeForTest(s string) string {
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '%' {
			var c byte
			fmt.Sscanf(s[i+1:i+3], "%02x", &c)
			b = append(b, c)
			i += 2
			continue
		}
		b = append(b, s[i])
	}
	return string(b)
}

func TestCopySourcesGoThroughTheParserOfPaths(t *testing.T) {
	ts := start(t, Config{})
	for source, key := range map[string]string{
		"/bucket/a": "a", "bucket/a": "a", "bucket%2Fa": "a", "/bucket/a+b": "a+b", "bucket/a%2Bb": "a+b", "bucket/a%20b": "a b", "bucket//x": "/x", "bucket/../y": "../y",
		"bucket/a%2Fb": "a/b", "bucket/q%3Fx": "q?x", "bucket/v?versionId=null": "v", "/bucket/a%3FversionId=1": "a?versionId=1",
	} {
		if a := ts.do(t, "PUT", "/bucket/"+awsEscape(key), []byte(source), "x-amz-meta-a", "1", "Content-Type", "x/y"); a.StatusCode != 200 {
			t.Fatal(string(a.body))
		}
		a := ts.do(t, "PUT", "/bucket/copy", nil, "x-amz-copy-source", source, "x-amz-checksum-algorithm", "SHA256")
		if a.StatusCode != 200 || !strings.Contains(string(a.body), "<ChecksumSHA256>") || !strings.Contains(string(a.body), "<LastModified>") {
			t.Errorf("%s: %d %s", source, a.StatusCode, a.body)
			continue
		}
		o, err := ts.engine.get("bucket", "copy")
		if err != nil || string(o.body) != source || len(o.v.Headers) != 2 {
			t.Errorf("copy of %s: %v %+v", source, err, o)
		}
	}
	a := ts.do(t, "PUT", "/bucket/copy", nil, "x-amz-copy-source", "/bucket/a", "x-amz-metadata-directive", "REPLACE", "x-amz-meta-b", "2")
	if o, err := ts.engine.get("bucket", "copy"); a.StatusCode != 200 || err != nil || len(o.v.Headers) != 1 || o.v.Headers[0].Name != "x-amz-meta-b" {
		t.Errorf("REPLACE: %d %v", a.StatusCode, o.v.Headers)
	}
	if a := ts.do(t, "PUT", "/bucket/copy", nil, "x-amz-copy-source", "/bucket/copy", "x-amz-metadata-directive", "REPLACE"); a.StatusCode != 200 {
		t.Errorf("a copy onto itself with new metadata: %s", a.body)
	}
	if a := ts.do(t, "PUT", "/bucket/copy", nil, "x-amz-copy-source", "/bucket/a", "If-None-Match", "*"); a.code() != "PreconditionFailed" {
		t.Errorf("a copy onto what is there: %s", a.body)
	}
}

func TestDeleteObjectsReportsEachKey(t *testing.T) {
	ts := start(t, Config{})
	ts.do(t, "PUT", "/bucket/a", []byte("x"))
	ts.do(t, "PUT", "/bucket/b", []byte("x"))
	for _, quiet := range []bool{false, true} {
		doc := fmt.Sprintf("<Delete><Quiet>%v</Quiet><Object><Key>a</Key></Object><Object><Key>b</Key><ETag>0</ETag></Object><Object><Key>c</Key><VersionId>7</VersionId></Object>"+
			"<Object><Key>d</Key><Size>1</Size></Object><Object><Key>%s</Key></Object><Object><Key></Key></Object></Delete>", quiet, strings.Repeat("k", 1025))
		a := ts.do(t, "POST", "/bucket?delete", []byte(doc), "x-amz-checksum-crc32", crcB64([]byte(doc)))
		if a.StatusCode != 200 {
			t.Fatal(string(a.body))
		}
		got := string(a.body)
		if strings.Contains(got, "<Deleted><Key>a</Key></Deleted>") == quiet {
			t.Errorf("quiet %v: %s", quiet, got)
		}
		for _, want := range []string{"<Key>b</Key><Code>PreconditionFailed", "<Key>c</Key><VersionId>7</VersionId><Code>NoSuchVersion", "<Key>d</Key><Code>NotImplemented", "</Key><Code>KeyTooLongError", "<Key></Key><Code>InvalidArgument"} {
			if !strings.Contains(got, want) {
				t.Errorf("the answer lacks %s: %s", want, got)
			}
		}
	}
	if _, err := ts.engine.get("bucket", "b"); err != nil {
		t.Error("b was deleted although its ETag did not match")
	}
}

func TestClientsOwnParametersAndNamesOfOperationsAreLetThrough(t *testing.T) {
	ts := start(t, Config{})
	if a := ts.do(t, "PUT", "/bucket/k?x-id=PutObject&x-trace=7", []byte("x")); a.StatusCode != 200 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	if a := ts.do(t, "PUT", "/bucket/k?x-amz-acl=private", []byte("x")); a.StatusCode != 501 {
		t.Errorf("an x-amz parameter of a request that is not presigned: %d %s", a.StatusCode, a.body)
	}
}

func TestPresignedParametersStandForHeaders(t *testing.T) {
	ts := start(t, Config{})
	send := func(query string, signed []string, headers ...string) answer {
		r := ts.request(t, "PUT", "/bucket/k?"+query, []byte("hello"), headers...)
		signer().Presign(r, time.Minute, signed...)
		return ts.send(t, r)
	}
	for query, want := range map[string]string{
		"x-amz-acl=private&x-amz-meta-a=1": "(200)", "x-amz-acl=public-read": "NotImplemented", "x-amz-server-side-encryption=AES256": "NotImplemented",
		"x-amz-checksum-crc32=AAAAAA%3D%3D": "BadDigest", "x-amz-copy-source=/bucket/none": "NoSuchKey",
	} {
		if a := send(query, nil); a.code() != want {
			t.Errorf("%s: %d %s", query, a.StatusCode, a.body)
		}
	}
	if a := send("x-amz-meta-a=1", []string{"x-amz-meta-a"}, "x-amz-meta-a", "2"); a.code() != "InvalidArgument" {
		t.Errorf("a header and a parameter that differ: %d %s", a.StatusCode, a.body)
	}
	r := ts.request(t, "PUT", "/bucket/k", []byte("hello"), "x-amz-content-sha256", authtest.Hash([]byte("x")))
	signer().Presign(r, time.Minute)
	if a := ts.send(t, r); a.code() != "AccessDenied" {
		t.Errorf("an unsigned content hash on a presigned request: %d %s", a.StatusCode, a.body)
	}
	if a := send("", nil); a.StatusCode != 200 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

// A literal hash is verified on requests that need no body too.
func TestBodylessRequestsHaveTheirHashVerified(t *testing.T) {
	ts := start(t, Config{})
	ts.do(t, "PUT", "/bucket/k", []byte("x"))
	for _, method := range []string{"GET", "DELETE"} {
		r := ts.request(t, method, "/bucket/k", nil)
		signer().Sign(r, authtest.Hash([]byte("other")))
		if a := ts.send(t, r); a.code() != "XAmzContentSHA256Mismatch" {
			t.Errorf("%s: %d %s", method, a.StatusCode, a.body)
		}
		r = ts.request(t, method, "/bucket/k", []byte("some body"))
		signer().Sign(r, authtest.Hash(nil))
		if a := ts.send(t, r); a.code() != "XAmzContentSHA256Mismatch" {
			t.Errorf("%s with a body: %d %s", method, a.StatusCode, a.body)
		}
	}
	if _, err := ts.engine.get("bucket", "k"); err != nil {
		t.Error("a DELETE with a wrong hash deleted")
	}
}

func TestEmptyAndDefaultBucketConfigurationsAreAccepted(t *testing.T) {
	ts := start(t, Config{})
	for i, doc := range []string{"", "<CreateBucketConfiguration/>", `<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></CreateBucketConfiguration>`,
		"<CreateBucketConfiguration><LocationConstraint></LocationConstraint></CreateBucketConfiguration>", "<CreateBucketConfiguration><LocationConstraint>us-east-1</LocationConstraint></CreateBucketConfiguration>"} {
		a := ts.do(t, "PUT", fmt.Sprintf("/bucket-%d/", i), []byte(doc), "x-amz-acl", "private", "x-amz-object-ownership", "BucketOwnerEnforced", "x-amz-bucket-object-lock-enabled", "False")
		if a.StatusCode != 200 || a.Header.Get("Location") != fmt.Sprintf("/bucket-%d", i) {
			t.Errorf("%q: %d %s", doc, a.StatusCode, a.body)
		}
	}
}

func TestAMultipartUploadIsConditional(t *testing.T) {
	ts := start(t, Config{})
	body := []byte("hello")
	up := ts.do(t, "POST", "/bucket/k?uploads=", nil, "x-amz-meta-a", "1")
	_, rest, _ := strings.Cut(string(up.body), "<UploadId>")
	id, _, _ := strings.Cut(rest, "<")
	part := ts.do(t, "PUT", "/bucket/k?partNumber=7&uploadId="+id, body)
	if part.StatusCode != 200 || part.Header.Get("Etag") != fmt.Sprintf("\"%x\"", md5.Sum(body)) {
		t.Fatalf("%d %s", part.StatusCode, part.body)
	}
	ts.do(t, "PUT", "/bucket/k", []byte("first"))
	doc := []byte(fmt.Sprintf("<CompleteMultipartUpload><Part><PartNumber>7</PartNumber><ETag>&quot;%x&quot;</ETag></Part></CompleteMultipartUpload>", md5.Sum(body)))
	if a := ts.do(t, "POST", "/bucket/k?uploadId="+id, doc, "If-None-Match", "*"); a.code() != "PreconditionFailed" {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	a := ts.do(t, "POST", "/bucket/k?uploadId="+id, doc)
	sum := md5.Sum(body)
	want := fmt.Sprintf("<ETag>&quot;%x-1&quot;</ETag>", md5.Sum(sum[:]))
	if a.StatusCode != 200 || !strings.Contains(string(a.body), want) || !strings.Contains(string(a.body), "<Location>http://"+ts.Listener.Addr().String()+"/bucket/k</Location>") {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	get := ts.do(t, "GET", "/bucket/k", nil)
	if !bytes.Equal(get.body, body) || get.Header.Get("X-Amz-Meta-A") != "1" {
		t.Errorf("%q %v", get.body, get.Header)
	}
}

func TestVersion2SignaturesAreRefusedByName(t *testing.T) {
	ts := start(t, Config{})
	a := ts.send(t, ts.request(t, http.MethodGet, "/bucket/k", nil, "Authorization", "AWS AKTEST:c2lnbmF0dXJl"))
	if a.StatusCode != 400 || a.code() != "InvalidRequest" || !strings.Contains(string(a.body), "AWS4-HMAC-SHA256") {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}
