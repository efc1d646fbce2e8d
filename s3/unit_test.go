package s3

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"objstore/metadata"
	"objstore/object"
	"objstore/s3/auth"
)

var update = flag.Bool("update", false, "rewrite golden files and docs/s3-matrix.md")

// golden compares with a file of testdata, or rewrites it.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run with -update and look at the change):\n%s", path, got)
	}
}

func TestTheMatrixInDocsIsTheTable(t *testing.T) {
	var b bytes.Buffer
	built := 0
	ops := operations()
	for _, op := range ops {
		if op.handle != nil {
			built++
		}
	}
	fmt.Fprintf(&b, "# S3 operations\n\nMade from the operation table in `s3/table.go` by `go test ./s3 -run Matrix -update`; a test keeps it true.\n")
	fmt.Fprintf(&b, "%d of %d operations are built. The others answer 501 `NotImplemented` with their name, and so does every query\nparameter and `x-amz-*` header that an operation does not enforce.\n\n", built, len(ops))
	b.WriteString("| operation | request | IAM action | built | note |\n|---|---|---|---|---|\n")
	for _, op := range ops {
		path := [...]string{"/", "/BUCKET", "/BUCKET/KEY"}[op.level]
		if op.query != "" {
			path += "?" + strings.ReplaceAll(op.query, " ", "&")
		}
		if op.header != "" {
			path += " with " + strings.ToLower(op.header)
		}
		yes := "no"
		if op.handle != nil {
			yes = "yes"
		}
		fmt.Fprintf(&b, "| %s | `%s %s` | %s | %s | %s |\n", op.name, op.method, path, op.action, yes, op.note)
	}
	golden(t, filepath.Join("..", "docs", "s3-matrix.md"), b.Bytes())
}

func TestEveryRowOfTheTableCanBeReached(t *testing.T) {
	r := newRouter(operations())
	seen := map[string]bool{}
	for _, op := range operations() {
		if seen[op.name] {
			t.Errorf("%s is in the table twice", op.name)
		}
		seen[op.name] = true
		if op.action == "" {
			t.Errorf("%s has no IAM action", op.name)
		}
		h := http.Header{}
		if op.header != "" {
			h[op.header] = []string{"x"}
		}
		row := r.match(op.level, op.method, queryOf(strings.Fields(op.query)...), h)
		if row == nil || row.name != op.name {
			t.Errorf("a request for %s is taken for %v", op.name, row)
		}
	}
}

func queryOf(names ...string) (q auth.Query) {
	for _, n := range names {
		q = append(q, auth.Param{Name: n})
	}
	return q
}

func TestBucketNames(t *testing.T) {
	for name, want := range map[string]bool{
		"abc": true, "a-b": true, "a.b.c": true, "0ab": true, "a--b": true, strings.Repeat("a", 63): true, "a.-b": true,
		"ab": false, strings.Repeat("a", 64): false, "Abc": false, "a_b": false, "-ab": false, "ab-": false, ".ab": false, "ab.": false, "a..b": false,
		"1.2.3.4": false, "xn--a": false, "sthree-a": false, "a-s3alias": false, "a--x-s3": false, "a/b": false, "ä-b": false, "": false, "-": false, "a b": false,
	} {
		if validBucket(name) != want {
			t.Errorf("%q: valid %v", name, !want)
		}
	}
}

func TestCombinedCRCsEqualTheCRCOfTheWhole(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		a, b := make([]byte, r.IntN(5000)), make([]byte, r.IntN(5000))
		for i := range a {
			a[i] = byte(r.Uint32())
		}
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		for _, id := range []uint8{1, 2, 3} {
			alg := algorithmByID(id)
			sum := func(parts ...[]byte) []byte {
				h := alg.create()
				for _, p := range parts {
					h.Write(p)
				}
				return h.Sum(nil)
			}
			if got, want := alg.combine(sum(a), sum(b), int64(len(b))), sum(a, b); !bytes.Equal(got, want) {
				t.Fatalf("%s of %d+%d bytes: %x, expected %x", alg.name, len(a), len(b), got, want)
			}
		}
	}
}

func TestXMLTextIsWhatAParserReadsBack(t *testing.T) {
	for _, s := range append(oddKeys, "tab\tlf\ncr\r", "\u00a0", "]]>", "&amp;", "\ufffd") {
		x := newXML()
		x.elem("K", s)
		var got struct {
			Text string `xml:",chardata"`
		}
		if err := xml.Unmarshal(x.b, &got); err != nil || got.Text != s {
			t.Errorf("%q became %q: %v", s, got.Text, err)
		}
	}
	x := newXML()
	x.text("a\x00\x1f\x7f\ufffe\uffff")
	if !strings.HasSuffix(string(x.b), "a&#x0;&#x1f;&#x7f;&#xfffe;&#xffff;") {
		t.Errorf("%q", x.b)
	}
}

func TestXMLTimes(t *testing.T) {
	x := newXML()
	for _, ms := range []int64{0, 1, 999, 1000, 86399999, 86400000, 1700000000123, -1, -86400000, -86400001, 951782400000} {
		x.b = x.b[:0]
		x.time("T", ms)
		if want := "<T>" + time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") + "</T>"; string(x.b) != want {
			t.Errorf("%d: %s, expected %s", ms, x.b, want)
		}
	}
}

func TestTokensAreReadBackAndJunkIsNot(t *testing.T) {
	for _, k := range append(oddKeys, "\x00") {
		if got, err := readToken(makeToken(k)); err != nil || got != k {
			t.Errorf("%q became %q: %v", k, got, err)
		}
	}
	for _, junk := range []string{"abc", "AQ", "AQAAAAAx", strings.Repeat("A", 5000), makeToken("x") + "A", "!"} {
		if got, err := readToken(junk); err == nil {
			t.Errorf("junk %q was read as %q", junk, got)
		}
	}
}

func TestStoredHeaders(t *testing.T) {
	h := http.Header{"Content-Type": {"a/b"}, "Content-Encoding": {"aws-chunked, gzip"}, "Expires": {"never"}, "X-Amz-Meta-Foo-Bar": {"1", "2"}, "X-Amz-Meta-A": {"ü"},
		"X-Amz-Acl": {"private"}, "Accept": {"x"}, "Content-Language": {""}}
	got, err := storedHeaders(h)
	if err != nil {
		t.Fatal(err)
	}
	want := []metadata.Pair{{Name: "Content-Encoding", Value: "gzip"}, {Name: "Content-Type", Value: "a/b"}, {Name: "Expires", Value: "never"},
		{Name: "x-amz-meta-a", Value: "ü"}, {Name: "x-amz-meta-foo-bar", Value: "1,2"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("stored %v, expected %v", got, want)
	}
	for in, want := range map[string]string{"aws-chunked": "", "gzip": "gzip", "gzip, aws-chunked , br": "gzip, br", "AWS-CHUNKED,x": "x", "my-aws-chunked": "my-aws-chunked"} {
		if got := dropAWSChunked(in); got != want {
			t.Errorf("%q became %q", in, got)
		}
	}
	if got, _ := storedHeaders(http.Header{}); got == nil {
		t.Error("no headers are nil, which means another thing to a copy")
	}
}

// entries makes a page as a real listing has it.
func entries(n int) object.ListResult {
	res := object.ListResult{Truncated: true, Next: "last"}
	for i := range n {
		res.Entries = append(res.Entries, metadata.Entry{Key: fmt.Sprintf("some/folder/with a name/object-%06d.jpg", i), Size: int64(i) * 1000,
			ETag: "d41d8cd98f00b204e9800998ecf8427e", ModTime: 1700000000000 + int64(i)*61001, Algorithm: 1})
	}
	return res
}

func TestListingsHaveTheFormAWSDocuments(t *testing.T) {
	ts := start(t, Config{OwnerID: "owner"})
	ts.engine.clock = 1700000000000
	for _, k := range []string{"a&b", "dir/1", "dir/2", "e\x01", "plain", "ü +"} {
		if a := ts.do(t, "PUT", "/bucket/"+awsEscape(k), []byte(k), "x-amz-checksum-crc32", crcB64([]byte(k))); a.StatusCode != 200 {
			t.Fatalf("%q: %s", k, a.body)
		}
	}
	for name, query := range map[string]string{
		"v2": "list-type=2&delimiter=/&max-keys=3&fetch-owner=true&start-after=Z", "v2-url": "list-type=2&encoding-type=url&prefix=%C3%BC%20",
		"v1": "delimiter=/&max-keys=2", "v1-marker": "marker=e&encoding-type=url", "v2-none": "list-type=2&max-keys=0", "uploads": "uploads&prefix=x",
	} {
		a := ts.do(t, "GET", "/bucket?"+query, nil)
		if a.StatusCode != 200 {
			t.Errorf("%s: %d %s", query, a.StatusCode, a.body)
		}
		golden(t, filepath.Join("testdata", "list-"+name+".xml"), append(a.body, '\n'))
	}
	for name, path := range map[string]string{"buckets": "/", "location": "/bucket?location", "acl": "/bucket?acl", "versioning": "/bucket?versioning", "tagging": "/bucket/plain?tagging"} {
		a := ts.do(t, "GET", path, nil)
		golden(t, filepath.Join("testdata", name+".xml"), append(a.body, '\n'))
	}
}

func FuzzXMLBodies(f *testing.F) {
	f.Add([]byte("<Delete><Quiet>true</Quiet><Object><Key>a</Key><VersionId>null</VersionId></Object></Delete>"))
	f.Add([]byte(`<CompleteMultipartUpload xmlns="x"><Part><PartNumber>1</PartNumber><ETag>"a"</ETag><ChecksumCRC32>AAAAAA==</ChecksumCRC32></Part></CompleteMultipartUpload>`))
	f.Add([]byte("<CreateBucketConfiguration><LocationConstraint>us-east-1</LocationConstraint></CreateBucketConfiguration>"))
	f.Add([]byte("<!DOCTYPE a [<!ENTITY b \"c\">]><Delete><Object><Key>&b;</Key></Object></Delete>"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d deleteXML
		if err := decodeXML(bytes.NewReader(b), &d); err == nil && d.XMLName.Local != "Delete" {
			t.Fatalf("%q is read as a Delete", b)
		}
		var c completeXML
		if err := decodeXML(bytes.NewReader(b), &c); err == nil {
			s := &stitch{}
			if err := s.readParts(c.Parts); err == nil {
				for i := range s.parts {
					if s.parts[i].Number < 1 || s.parts[i].ETag == "" || i > 0 && s.parts[i].Number <= s.parts[i-1].Number {
						t.Fatalf("accepted %+v", s.parts)
					}
				}
			}
		}
		var l createBucketXML
		_ = decodeXML(bytes.NewReader(b), &l)
	})
}

func FuzzNames(f *testing.F) {
	for _, k := range oddKeys {
		f.Add("/bucket/"+k, "bucket.s3.example:80")
	}
	f.Fuzz(func(t *testing.T, path, host string) {
		tg, err := parseTarget(path, host, "s3.example")
		if err != nil || tg.checkNames() != nil {
			return
		}
		if tg.bucket != "" && !validBucket(tg.bucket) || len(tg.key) > metadata.MaxKeyLen || !utf8.ValidString(tg.key) {
			t.Fatalf("%q at %q gives %+v", path, host, tg)
		}
		if tg.bucket != "" && tg.key != "" {
			again, err := parseTarget("/"+tg.bucket+"/"+awsEscape(tg.key), "", "")
			if err != nil || again != tg {
				t.Fatalf("%+v escaped and read again is %+v: %v", tg, again, err)
			}
		}
	})
}
