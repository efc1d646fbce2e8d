package s3

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"objstore/internal/oerr"
	"objstore/s3/auth/authtest"
)

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func crcB64(b []byte) string {
	h := crc32.NewIEEE()
	h.Write(b)
	return b64(h.Sum(nil))
}

func md5B64(b []byte) string {
	s := md5.Sum(b)
	return b64(s[:])
}

// Every refusal has the code AWS documents, and leaves nothing behind.
func TestBadRequestsGetTheCodeAWSDocuments(t *testing.T) {
	ts := start(t, Config{Domain: "s3.example"})
	hello := []byte("hello")
	if a := ts.do(t, "PUT", "/bucket/there", hello); a.StatusCode != 200 {
		t.Fatal(string(a.body))
	}
	up := ts.do(t, "POST", "/bucket/there?uploads", nil)
	_, rest, _ := strings.Cut(string(up.body), "<UploadId>")
	uploadID, _, _ := strings.Cut(rest, "<")
	for i := range 2 {
		if a := ts.do(t, "PUT", fmt.Sprintf("/bucket/there?uploadId=%s&partNumber=%d", uploadID, i+1), hello); a.StatusCode != 200 {
			t.Fatal(string(a.body))
		}
	}
	helloMD5 := fmt.Sprintf("%x", md5.Sum(hello))
	part := func(n int, etag string) string {
		return fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", n, etag)
	}
	complete := func(parts string) []byte {
		return []byte("<CompleteMultipartUpload>" + parts + "</CompleteMultipartUpload>")
	}
	object := func(n int) []byte {
		return []byte("<Delete>" + strings.Repeat("<Object><Key>k</Key></Object>", n) + "</Delete>")
	}
	digest := func(b []byte) []string { return []string{"Content-MD5", md5B64(b)} }
	cases := []struct {
		name, method, path string
		body               []byte
		headers            []string
		want               string
	}{
		{"bucket name in capitals", "PUT", "/Bucket", nil, nil, "InvalidBucketName"},
		{"bucket name too short", "PUT", "/ab", nil, nil, "InvalidBucketName"},
		{"bucket name with dots together", "GET", "/a..b", nil, nil, "InvalidBucketName"},
		{"bucket name that is an address", "GET", "/192.168.5.4/k", nil, nil, "InvalidBucketName"},
		{"bucket that is there", "PUT", "/bucket", nil, nil, "BucketAlreadyOwnedByYou"},
		{"bucket elsewhere", "PUT", "/bucket2", []byte("<CreateBucketConfiguration><LocationConstraint>mars</LocationConstraint></CreateBucketConfiguration>"), nil, "IllegalLocationConstraintException"},
		{"bucket with tags", "PUT", "/bucket2", []byte("<CreateBucketConfiguration><Tags><Tag/></Tags></CreateBucketConfiguration>"), nil, "NotImplemented"},
		{"bucket with broken XML", "PUT", "/bucket2", []byte("<CreateBucketConfiguration>"), nil, "MalformedXML"},
		{"bucket with object lock", "PUT", "/bucket2", nil, []string{"x-amz-bucket-object-lock-enabled", "true"}, "NotImplemented"},
		{"bucket that is absent", "GET", "/absent?list-type=2", nil, nil, "NoSuchBucket"},
		{"key of 1,025 bytes", "PUT", "/bucket/" + strings.Repeat("k", 1025), hello, nil, "KeyTooLongError"},
		{"key that is not UTF-8", "PUT", "/bucket/%ff", hello, nil, "InvalidURI"},
		{"key that is absent", "GET", "/bucket/absent", nil, nil, "NoSuchKey"},
		{"version that is absent", "GET", "/bucket/there?versionId=x", nil, nil, "NoSuchVersion"},
		{"empty version", "GET", "/bucket/there?versionId=", nil, nil, "InvalidArgument"},
		{"method that is none", "PATCH", "/bucket/there", nil, nil, "MethodNotAllowed"},
		{"operation that is not built", "GET", "/bucket?policy", nil, nil, "NotImplemented"},
		{"sub-resource that is unknown", "GET", "/bucket?frobnicate", nil, nil, "NotImplemented"},
		{"sub-resource of another operation", "PUT", "/bucket/there?attributes", hello, nil, "NotImplemented"},
		{"parameter given twice", "GET", "/bucket?prefix=a&prefix=b", nil, nil, "InvalidArgument"},
		{"broken escape in the query", "GET", "/bucket?prefix=%zz", nil, nil, "InvalidURI"},
		{"header that is unknown", "PUT", "/bucket/k", hello, []string{"x-amz-frobnicate", "1"}, "NotImplemented"},
		{"encryption", "PUT", "/bucket/k", hello, []string{"x-amz-server-side-encryption", "AES256"}, "NotImplemented"},
		{"public ACL", "PUT", "/bucket/k", hello, []string{"x-amz-acl", "public-read"}, "NotImplemented"},
		{"an ACL given twice", "PUT", "/bucket/k", hello, []string{"x-amz-acl", "private", "x-amz-acl", "public-read"}, "InvalidArgument"},
		{"grant", "PUT", "/bucket/k", hello, []string{"x-amz-grant-read", "id=1"}, "NotImplemented"},
		{"other storage class", "PUT", "/bucket/k", hello, []string{"x-amz-storage-class", "GLACIER"}, "NotImplemented"},
		{"tags", "PUT", "/bucket/k", hello, []string{"x-amz-tagging", "a=b"}, "NotImplemented"},
		{"object lock", "PUT", "/bucket/k", hello, []string{"x-amz-object-lock-mode", "GOVERNANCE"}, "NotImplemented"},
		{"redirect", "PUT", "/bucket/k", hello, []string{"x-amz-website-redirect-location", "/x"}, "NotImplemented"},
		{"append", "PUT", "/bucket/k", hello, []string{"x-amz-write-offset-bytes", "5"}, "NotImplemented"},
		{"conditional put by date", "PUT", "/bucket/k", hello, []string{"If-Unmodified-Since", time.Now().UTC().Format(http.TimeFormat)}, "NotImplemented"},
		{"other bucket owner", "GET", "/bucket/there", nil, []string{"x-amz-expected-bucket-owner", "123456789012"}, "AccessDenied"},
		{"2 KiB of user metadata", "PUT", "/bucket/k", hello, []string{"x-amz-meta-a", strings.Repeat("m", 2048)}, "MetadataTooLarge"},
		{"8 KiB of headers", "PUT", "/bucket/k", hello, []string{"Cache-Control", strings.Repeat("m", 8300)}, "MetadataTooLarge"},
		{"Content-MD5 that is none", "PUT", "/bucket/k", hello, []string{"Content-MD5", "xyz"}, "InvalidDigest"},
		{"wrong Content-MD5", "PUT", "/bucket/k", hello, []string{"Content-MD5", md5B64(nil)}, "BadDigest"},
		{"checksum that is none", "PUT", "/bucket/k", hello, []string{"x-amz-checksum-crc32", "AA=="}, "InvalidRequest"},
		{"wrong checksum", "PUT", "/bucket/k", hello, []string{"x-amz-checksum-crc32", crcB64(nil)}, "BadDigest"},
		{"two checksums", "PUT", "/bucket/k", hello, []string{"x-amz-checksum-crc32", crcB64(hello), "x-amz-checksum-crc32c", "AAAAAA=="}, "InvalidRequest"},
		{"checksum algorithm without a value", "PUT", "/bucket/k", hello, []string{"x-amz-sdk-checksum-algorithm", "CRC32"}, "InvalidRequest"},
		{"checksum algorithm of another value", "PUT", "/bucket/k", hello, []string{"x-amz-sdk-checksum-algorithm", "SHA256", "x-amz-checksum-crc32", crcB64(hello)}, "InvalidRequest"},
		{"checksum algorithm that is unknown", "PUT", "/bucket/k", hello, []string{"x-amz-sdk-checksum-algorithm", "ROT13"}, "InvalidRequest"},
		{"trailer in a body without trailers", "PUT", "/bucket/k", hello, []string{"x-amz-trailer", "x-amz-checksum-crc32"}, "InvalidRequest"},
		{"checksum mode that is none", "GET", "/bucket/there", nil, []string{"x-amz-checksum-mode", "ON"}, "InvalidArgument"},
		{"range beyond the end", "GET", "/bucket/there", nil, []string{"Range", "bytes=5-"}, "InvalidRange"},
		{"range and part", "GET", "/bucket/there?partNumber=1", nil, []string{"Range", "bytes=0-1"}, "InvalidRequest"},
		{"part 0", "GET", "/bucket/there?partNumber=0", nil, nil, "InvalidArgument"},
		{"part 2 of an object in one piece", "GET", "/bucket/there?partNumber=2", nil, nil, "InvalidPartNumber"},
		{"If-Match that does not", "GET", "/bucket/there", nil, []string{"If-Match", `"0"`}, "PreconditionFailed"},
		{"If-Match on an absent key", "PUT", "/bucket/k", hello, []string{"If-Match", `"0"`}, "NoSuchKey"},
		{"If-None-Match: * on a key that is there", "PUT", "/bucket/there", hello, []string{"If-None-Match", "*"}, "PreconditionFailed"},
		{"control character in an override", "GET", "/bucket/there?response-content-type=a%0d%0aSet-Cookie:x", nil, nil, "InvalidArgument"},
		{"part number 0", "PUT", "/bucket/there?partNumber=0&uploadId=" + uploadID, hello, nil, "InvalidArgument"},
		{"part number 10001", "PUT", "/bucket/there?partNumber=10001&uploadId=" + uploadID, hello, nil, "InvalidArgument"},
		{"no part number", "PUT", "/bucket/there?uploadId=" + uploadID, hello, nil, "InvalidArgument"},
		{"upload that is none", "PUT", "/bucket/there?partNumber=1&uploadId=x", hello, nil, "NoSuchUpload"},
		{"upload that is absent", "PUT", "/bucket/there?partNumber=1&uploadId=" + strings.Repeat("1", 32), hello, nil, "NoSuchUpload"},
		{"wrong checksum of a part", "PUT", "/bucket/there?partNumber=1&uploadId=" + uploadID, hello, []string{"x-amz-checksum-crc32", crcB64(nil)}, "BadDigest"},
		{"checksum type without an algorithm", "POST", "/bucket/k?uploads", nil, []string{"x-amz-checksum-type", "FULL_OBJECT"}, "InvalidRequest"},
		{"full-object SHA-256", "POST", "/bucket/k?uploads", nil, []string{"x-amz-checksum-algorithm", "SHA256", "x-amz-checksum-type", "FULL_OBJECT"}, "InvalidRequest"},
		{"composite CRC64NVME", "POST", "/bucket/k?uploads", nil, []string{"x-amz-checksum-algorithm", "CRC64NVME", "x-amz-checksum-type", "COMPOSITE"}, "InvalidRequest"},
		{"complete without a body", "POST", "/bucket/there?uploadId=" + uploadID, nil, nil, "MalformedXML"},
		{"complete with another document", "POST", "/bucket/there?uploadId=" + uploadID, []byte("<Delete/>"), nil, "MalformedXML"},
		{"complete with two documents", "POST", "/bucket/there?uploadId=" + uploadID, append(complete(part(1, helloMD5)), "<a/>"...), nil, "MalformedXML"},
		{"complete without parts", "POST", "/bucket/there?uploadId=" + uploadID, complete(""), nil, "MalformedXML"},
		{"complete out of order", "POST", "/bucket/there?uploadId=" + uploadID, complete(part(2, helloMD5) + part(1, helloMD5)), nil, "InvalidPartOrder"},
		{"complete with a part twice", "POST", "/bucket/there?uploadId=" + uploadID, complete(part(1, helloMD5) + part(1, helloMD5)), nil, "InvalidPartOrder"},
		{"complete with another ETag", "POST", "/bucket/there?uploadId=" + uploadID, complete(part(1, "0")), nil, "InvalidPart"},
		{"complete with an absent part", "POST", "/bucket/there?uploadId=" + uploadID, complete(part(3, helloMD5)), nil, "InvalidPart"},
		{"complete with small parts", "POST", "/bucket/there?uploadId=" + uploadID, complete(part(1, helloMD5) + part(2, helloMD5)), nil, "EntityTooSmall"},
		{"complete with another size", "POST", "/bucket/there?uploadId=" + uploadID, complete(part(1, helloMD5)), []string{"x-amz-mp-object-size", "6"}, "InvalidRequest"},
		{"complete with a checksum nobody computed", "POST", "/bucket/there?uploadId=" + uploadID, complete(part(1, helloMD5)), []string{"x-amz-checksum-crc32", crcB64(hello)}, "InvalidRequest"},
		{"complete with a checksum of a part nobody computed", "POST", "/bucket/there?uploadId=" + uploadID, complete("<Part><PartNumber>1</PartNumber><ETag>" + helloMD5 + "</ETag><ChecksumCRC32>" + crcB64(hello) + "</ChecksumCRC32></Part>"), nil, "InvalidPart"},
		{"complete with a large body", "POST", "/bucket/there?uploadId=" + uploadID, make([]byte, MaxCompleteXML+1), nil, "MaxMessageLengthExceeded"},
		{"delete without a digest", "POST", "/bucket?delete", object(1), nil, "InvalidRequest"},
		{"delete with a wrong digest", "POST", "/bucket?delete", object(1), digest(nil), "BadDigest"},
		{"delete of nothing", "POST", "/bucket?delete", object(0), digest(object(0)), "MalformedXML"},
		{"delete of 1,001 keys", "POST", "/bucket?delete", object(1001), digest(object(1001)), "MalformedXML"},
		{"delete in an absent bucket", "POST", "/absent?delete", object(1), digest(object(1)), "NoSuchBucket"},
		{"delete with If-None-Match", "DELETE", "/bucket/there", nil, []string{"If-None-Match", "*"}, "NotImplemented"},
		{"bucket that is not empty", "DELETE", "/bucket", nil, nil, "BucketNotEmpty"},
		{"copy from nowhere", "PUT", "/bucket/k", nil, []string{"x-amz-copy-source", "bucket"}, "InvalidArgument"},
		{"copy from an absent key", "PUT", "/bucket/k", nil, []string{"x-amz-copy-source", "/bucket/absent"}, "NoSuchKey"},
		{"copy from a bad bucket", "PUT", "/bucket/k", nil, []string{"x-amz-copy-source", "/../there"}, "InvalidBucketName"},
		{"copy from a broken escape", "PUT", "/bucket/k", nil, []string{"x-amz-copy-source", "/bucket/%zz"}, "InvalidURI"},
		{"copy from an absent version", "PUT", "/bucket/k", nil, []string{"x-amz-copy-source", "/bucket/there?versionId=3"}, "NoSuchVersion"},
		{"copy from an ARN", "PUT", "/bucket/k", nil, []string{"x-amz-copy-source", "arn:aws:s3:us-west-2:1:accesspoint/a/object/b"}, "NotImplemented"},
		{"copy onto itself", "PUT", "/bucket/there", nil, []string{"x-amz-copy-source", "/bucket/there"}, "InvalidRequest"},
		{"copy with a directive that is none", "PUT", "/bucket/k", nil, []string{"x-amz-copy-source", "/bucket/there", "x-amz-metadata-directive", "MERGE"}, "InvalidArgument"},
		{"copy if another ETag", "PUT", "/bucket/k", nil, []string{"x-amz-copy-source", "/bucket/there", "x-amz-copy-source-if-match", "0"}, "PreconditionFailed"},
		{"copy if not this ETag", "PUT", "/bucket/k", nil, []string{"x-amz-copy-source", "/bucket/there", "x-amz-copy-source-if-none-match", helloMD5}, "PreconditionFailed"},
		{"copy with a body", "PUT", "/bucket/k", make([]byte, MaxEmptyBody+1), []string{"x-amz-copy-source", "/bucket/there"}, "MaxMessageLengthExceeded"},
		{"copy condition without a copy", "PUT", "/bucket/k", hello, []string{"x-amz-copy-source-if-match", "0"}, "NotImplemented"},
		{"part copy of a range that is none", "PUT", "/bucket/there?partNumber=1&uploadId=" + uploadID, nil, []string{"x-amz-copy-source", "/bucket/there", "x-amz-copy-source-range", "bytes=-2"}, "InvalidArgument"},
		{"list type 3", "GET", "/bucket?list-type=3", nil, nil, "InvalidArgument"},
		{"max-keys that is no number", "GET", "/bucket?max-keys=x", nil, nil, "InvalidArgument"},
		{"negative max-keys", "GET", "/bucket?list-type=2&max-keys=-1", nil, nil, "InvalidArgument"},
		{"encoding type that is none", "GET", "/bucket?encoding-type=x", nil, nil, "InvalidArgument"},
		{"continuation token that is none", "GET", "/bucket?list-type=2&continuation-token=abc", nil, nil, "InvalidArgument"},
		{"empty continuation token", "GET", "/bucket?list-type=2&continuation-token=", nil, nil, "InvalidArgument"},
		{"upload marker that is none", "GET", "/bucket?uploads&key-marker=a&upload-id-marker=x", nil, nil, "InvalidArgument"},
		{"prefix that is too long", "GET", "/bucket?prefix=" + strings.Repeat("p", 1025), nil, nil, "KeyTooLongError"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			a := ts.do(t, tc.method, tc.path, tc.body, tc.headers...)
			if a.code() != tc.want {
				t.Errorf("answered %d %s: %s", a.StatusCode, a.code(), a.body)
			}
			if a.Header.Get("X-Amz-Request-Id") == "" || !strings.Contains(string(a.body), "<RequestId>"+a.Header.Get("X-Amz-Request-Id")+"</RequestId>") || !strings.Contains(string(a.body), "<Resource>") {
				t.Errorf("the error has no request id or resource: %s", a.body)
			}
			if a.Header.Get("Etag") != "" {
				t.Error("the error has an ETag")
			}
		})
	}
	if _, err := ts.engine.get("bucket", "k"); err == nil {
		t.Error("a refused request left an object behind")
	}
	if len(ts.engine.buckets) != 1 {
		t.Error("a refused request left a bucket behind")
	}
}

// Each mode of x-amz-content-sha256, whole and damaged: what is damaged is refused and leaves nothing behind.
func TestEveryPayloadModeGoodAndBad(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 2000)
	crc := crcB64(body)
	trailers := []authtest.Trailer{{Name: "x-amz-checksum-crc32", Value: crc}}
	wrong := []authtest.Trailer{{Name: "x-amz-checksum-crc32", Value: crcB64(nil)}}
	type mode struct {
		name, payload string
		streaming     bool
		trailing      bool
	}
	modes := []mode{
		{"literal", authtest.Hash(body), false, false}, {"unsigned", "UNSIGNED-PAYLOAD", false, false},
		{"signed chunks", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", true, false}, {"signed chunks and trailer", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", true, true},
		{"unsigned chunks and trailer", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", true, true},
	}
	for _, readAll := range []bool{true, false} {
		ts := start(t, Config{})
		ts.engine.readAll = readAll
		for _, m := range modes {
			send := func(damage string) answer {
				r, err := http.NewRequest("PUT", ts.URL+"/bucket/k", nil)
				if err != nil {
					t.Fatal(err)
				}
				if m.streaming {
					r.Header.Set("X-Amz-Decoded-Content-Length", strconv.Itoa(len(body)))
					r.Header.Set("Content-Encoding", "aws-chunked,gzip")
				}
				if m.trailing {
					r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
				}
				switch damage {
				case "no decoded length":
					r.Header.Del("X-Amz-Decoded-Content-Length")
				case "longer decoded length":
					r.Header.Set("X-Amz-Decoded-Content-Length", strconv.Itoa(len(body)+1))
				case "shorter decoded length":
					r.Header.Set("X-Amz-Decoded-Content-Length", strconv.Itoa(len(body)-1))
				case "other trailer announced":
					r.Header.Set("X-Amz-Trailer", "x-amz-checksum-sha1")
				case "trailer that is no checksum":
					r.Header.Set("X-Amz-Trailer", "x-amz-meta-a")
				case "checksum as header too":
					r.Header.Set("X-Amz-Checksum-Crc32", crc)
				case "other checksum as header":
					r.Header.Set("X-Amz-Checksum-Crc32", crcB64([]byte("x")))
				}
				s := signer()
				seed := s.Sign(r, m.payload)
				if damage == "signature" {
					r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "Signature=", "Signature=0", 1)[:len(r.Header.Get("Authorization"))])
				}
				wire := body
				if m.streaming {
					tr := trailers
					if damage == "wrong trailer" {
						tr = wrong
					}
					if damage == "no trailer" || damage == "checksum as header too" {
						tr = []authtest.Trailer{}
					}
					if !m.trailing {
						tr = nil
					}
					if m.payload == "STREAMING-UNSIGNED-PAYLOAD-TRAILER" {
						seed = ""
					}
					wire = s.Chunked(body, 8192, seed, tr)
				}
				if damage == "payload" {
					wire = bytes.Replace(wire, []byte("0123456789"), []byte("0123456780"), 1)
				}
				if damage == "cut" {
					wire = wire[:len(wire)/2]
				}
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(wire)), int64(len(wire))
				return ts.send(t, r)
			}
			cases := map[string]string{"signature": "SignatureDoesNotMatch"}
			if m.name == "literal" {
				cases["payload"], cases["cut"] = "XAmzContentSHA256Mismatch", "XAmzContentSHA256Mismatch"
			}
			if m.streaming {
				cases["payload"], cases["cut"] = "SignatureDoesNotMatch", "IncompleteBody"
				cases["no decoded length"], cases["longer decoded length"], cases["shorter decoded length"] = "MissingContentLength", "IncompleteBody", "IncompleteBody"
			}
			if m.trailing {
				cases["wrong trailer"], cases["no trailer"], cases["other trailer announced"], cases["trailer that is no checksum"] = "BadDigest", "MalformedTrailerError", "MalformedTrailerError", "InvalidRequest"
				cases["checksum as header too"], cases["other checksum as header"] = "(200)", "BadDigest"
			}
			if m.name == "unsigned chunks and trailer" {
				cases["payload"] = "BadDigest"
			}
			for damage, want := range cases {
				a := send(damage)
				if a.code() != want {
					t.Errorf("%s, damaged %s: %d %s, expected %s", m.name, damage, a.StatusCode, a.body, want)
				}
				o, err := ts.engine.get("bucket", "k")
				if (err == nil) != (want == "(200)") {
					t.Errorf("%s, damaged %s: an object is there: %v", m.name, damage, err)
				}
				if err == nil {
					delete(ts.engine.buckets["bucket"].objects, o.v.Key)
				}
			}
			if a := send(""); a.StatusCode != 200 || a.Header.Get("Etag") != fmt.Sprintf("\"%x\"", md5.Sum(body)) || m.trailing && a.Header.Get("X-Amz-Checksum-Crc32") != crc {
				t.Errorf("%s: %d %s", m.name, a.StatusCode, a.body)
			}
			o, err := ts.engine.get("bucket", "k")
			if err != nil || !bytes.Equal(o.body, body) {
				t.Fatalf("%s: %v", m.name, err)
			}
			for _, p := range o.v.Headers {
				if m.streaming && (p.Name != "Content-Encoding" || p.Value != "gzip") {
					t.Errorf("%s: stored header %v", m.name, p)
				}
			}
			delete(ts.engine.buckets["bucket"].objects, "k")
		}
	}
}

// Nobody without a valid signature learns whether anything exists.
func TestUnauthorisedRequestsLookTheSameWhateverExists(t *testing.T) {
	ts := start(t, Config{})
	ts.do(t, "PUT", "/bucket/there", []byte("x"))
	for _, q := range []string{"", "?uploads", "?policy", "?list-type=2", "?frobnicate", "?partNumber=1"} {
		var first string
		for _, path := range []string{"/bucket/there", "/bucket/absent", "/absent/there"} {
			for _, how := range []string{"none", "wrong"} {
				r := ts.request(t, "GET", path+q, nil, "If-None-Match", "*")
				if how == "wrong" {
					s := signer()
					s.Secret = "wrong"
					s.Sign(r, authtest.Hash(nil))
				}
				a := ts.send(t, r)
				got := how + " " + strconv.Itoa(a.StatusCode) + a.code()
				if how == "none" && got != "none 403AccessDenied" || how == "wrong" && got != "wrong 403SignatureDoesNotMatch" {
					t.Errorf("%s%s with %s credential: %s", path, q, how, got)
				}
			}
			_ = first
		}
	}
	// An unknown verdict on a key is not a verdict.
	r := ts.request(t, "GET", "/bucket/there", nil)
	s := signer()
	s.AccessKey = "UNKNOWABLE"
	s.Sign(r, authtest.Hash(nil))
	if a := ts.send(t, r); a.StatusCode != 503 || a.Header.Get("Retry-After") == "" {
		t.Errorf("credentials that cannot be looked up: %d %s", a.StatusCode, a.body)
	}
}

func TestBrowserFormsAreRefusedByName(t *testing.T) {
	ts := start(t, Config{})
	a := ts.send(t, ts.request(t, "POST", "/bucket", []byte("--x--"), "Content-Type", "multipart/form-data; boundary=x"))
	if a.StatusCode != 501 || !strings.Contains(string(a.body), "PostObject") {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

func TestEngineErrorsBecomeHonestAnswers(t *testing.T) {
	ts := start(t, Config{})
	ts.do(t, "PUT", "/bucket/k", []byte("hello"))
	for _, tc := range []struct {
		err    error
		status int
		code   string
	}{
		{oerr.E("x", oerr.Unavailable, nil), 503, "ServiceUnavailable"}, {oerr.E("x", oerr.OutcomeUnknown, nil), 503, "ServiceUnavailable"},
		{oerr.E("x", oerr.Busy, nil), 503, "SlowDown"}, {oerr.E("x", oerr.DriveFull, nil), 507, "StorageFull"},
		{errors.New("secret detail"), 500, "InternalError"}, {oerr.E("x", oerr.Corrupt, errors.New("secret detail")), 500, "InternalError"},
	} {
		ts.engine.set(func() { ts.engine.failWith = tc.err })
		for _, m := range []string{"GET", "PUT", "DELETE", "HEAD"} {
			a := ts.do(t, m, "/bucket/k", nil)
			if a.StatusCode != tc.status || m != "HEAD" && a.code() != tc.code || strings.Contains(string(a.body), "secret") {
				t.Errorf("%s with %v: %d %s", m, tc.err, a.StatusCode, a.body)
			}
			if tc.status == 503 && a.Header.Get("Retry-After") == "" {
				t.Errorf("%s with %v: no Retry-After", m, tc.err)
			}
			if m == "HEAD" && len(a.body) != 0 {
				t.Errorf("HEAD has a body: %s", a.body)
			}
		}
	}
}
