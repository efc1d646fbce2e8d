package auth

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"objstore/s3/auth/authtest"
)

func grantFor(mode Mode, seed string) *Grant {
	g := &Grant{AccessKey: exampleKey, Mode: mode, iso: "20130524T000000Z", scope: "20130524/us-east-1/s3/aws4_request",
		key: SigningKey(exampleSecret, "20130524", "us-east-1")}
	copy(g.signature[:], seed)
	return g
}

const exampleSeed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"

// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
func TestAWSPublishedChunkedUploadVerifies(t *testing.T) {
	r := parse(t, "PUT /examplebucket/chunkObject.txt HTTP/1.1\nHost: s3.amazonaws.com\nx-amz-date: 20130524T000000Z\nx-amz-storage-class: REDUCED_REDUNDANCY\n"+
		"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\nContent-Encoding: aws-chunked\nx-amz-decoded-content-length: 66560\nContent-Length: 66824\n"+
		"Authorization: AWS4-HMAC-SHA256 "+credential+",SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class,Signature="+exampleSeed+"\n\n")
	g, err := verify(exampleVerifier(t, exampleTime), r)
	if err != nil {
		t.Fatal(err)
	}
	a := strings.Repeat("a", 66560)
	wire := "10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n" + a[:65536] + "\r\n" +
		"400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n" + a[:1024] + "\r\n" +
		"0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n"
	if len(wire) != 66824 {
		t.Fatalf("the example has %d bytes", len(wire))
	}
	c, err := g.NewReader(strings.NewReader(wire), 66560, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != a {
		t.Fatalf("read %d bytes: %v", len(got), err)
	}
}

// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html
func TestAWSPublishedTrailerUploadVerifies(t *testing.T) {
	r := parse(t, "PUT /examplebucket/chunkObject.txt HTTP/1.1\nHost: s3.amazonaws.com\nx-amz-date: 20130524T000000Z\nx-amz-storage-class: REDUCED_REDUNDANCY\n"+
		"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER\nContent-Encoding: aws-chunked\nx-amz-decoded-content-length: 66560\nx-amz-trailer: x-amz-checksum-crc32c\nContent-Length: 66946\n"+
		"Authorization: AWS4-HMAC-SHA256 "+credential+",SignedHeaders=content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;x-amz-trailer,Signature=106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e\n\n")
	g, err := verify(exampleVerifier(t, exampleTime), r)
	if err != nil {
		t.Fatal(err)
	}
	a := strings.Repeat("a", 66560)
	wire := "10000;chunk-signature=b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2\r\n" + a[:65536] + "\r\n" +
		"400;chunk-signature=1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7\r\n" + a[:1024] + "\r\n" +
		"0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n" +
		"x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n"
	c, err := g.NewReader(strings.NewReader(wire), 66560, []string{"x-amz-checksum-crc32c"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Fatal(err)
	}
	if v, ok := c.Trailer("x-amz-checksum-crc32c"); !ok || v != "sOO8/Q==" {
		t.Errorf("trailer %q %v", v, ok)
	}
}

var trailerAnnounced = []string{"x-amz-checksum-crc32"}

// chunked makes a good body of each mode, and what to read it with.
func chunked(mode Mode, body []byte, size int) []byte {
	s := exampleSigner()
	tr := []authtest.Trailer{{Name: "x-amz-checksum-crc32", Value: "AAAAAA=="}}
	switch mode {
	case StreamSigned:
		return s.Chunked(body, size, exampleSeed, nil)
	case StreamSignedTrailer:
		return s.Chunked(body, size, exampleSeed, tr)
	}
	return s.Chunked(body, size, "", tr)
}

var streaming = []Mode{StreamSigned, StreamSignedTrailer, StreamUnsignedTrailer}

func TestGoodChunkedBodiesReadBackUnderAnyReadSizes(t *testing.T) {
	for _, mode := range streaming {
		for _, n := range []int{0, 1, 8191, 8192, 8193, 70000} {
			body := bytes.Repeat([]byte("0123456789abcdef!"), n/17+1)[:n]
			wire := chunked(mode, body, 8192)
			for how, r := range map[string]io.Reader{"whole": bytes.NewReader(wire), "one byte at a time": iotest.OneByteReader(bytes.NewReader(wire)), "data with EOF": iotest.DataErrReader(bytes.NewReader(wire))} {
				c, err := grantFor(mode, exampleSeed).NewReader(r, int64(n), trailerAnnounced)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(iotest.HalfReader(c))
				if err != nil || !bytes.Equal(got, body) {
					t.Errorf("mode %d, %d bytes, %s: read %d: %v", mode, n, how, len(got), err)
				}
				if err := c.Finish(); err != nil {
					t.Errorf("Finish after the end: %v", err)
				}
				c.Release()
			}
		}
	}
}

func TestFinishReadsTheTailOfABodyReadExactly(t *testing.T) {
	for _, mode := range streaming {
		body := bytes.Repeat([]byte("x"), 10000)
		wire := chunked(mode, body, 4096)
		c, _ := grantFor(mode, exampleSeed).NewReader(bytes.NewReader(wire), 10000, trailerAnnounced)
		if _, err := io.ReadFull(c, make([]byte, 10000)); err != nil {
			t.Fatal(err)
		}
		if err := c.Finish(); err != nil {
			t.Errorf("mode %d: %v", mode, err)
		}
		c.Release()
	}
}

// Every single-byte change and every truncation of a signed body must be noticed; of an unsigned one, every
// truncation (its payload is covered by the checksum in the trailer, which the handlers compare).
func TestNoDamagedChunkedBodyIsAccepted(t *testing.T) {
	body := []byte(strings.Repeat("payload", 40))
	for _, mode := range streaming {
		wire := chunked(mode, body, 100)
		read := func(w []byte) ([]byte, error) {
			c, _ := grantFor(mode, exampleSeed).NewReader(bytes.NewReader(w), int64(len(body)), trailerAnnounced)
			defer c.Release()
			return io.ReadAll(c)
		}
		for i := range wire {
			// A missing last line end is tolerated when all that matters has come.
			got, err := read(wire[:i])
			if err == nil && i < len(wire)-4 && !(mode == StreamUnsignedTrailer && strings.HasSuffix(string(wire[:i]), "0\r\n")) {
				t.Errorf("mode %d: accepted %d of %d bytes", mode, i, len(wire))
			}
			if mode == StreamUnsignedTrailer {
				continue
			}
			w := bytes.Clone(wire)
			w[i] ^= 1
			if got, err = read(w); err == nil && !bytes.Equal(got, body) {
				t.Errorf("mode %d: accepted other bytes after a change at %d", mode, i)
			}
			if err == nil && i < len(wire)-130 && w[i] != '\f' && w[i] != '\v' && wire[i] != '\n' && wire[i] != '\r' {
				t.Errorf("mode %d: a change of %q at %d was not noticed", mode, wire[i], i)
			}
		}
	}
}

func TestMalformedChunkedBodies(t *testing.T) {
	sig := strings.Repeat("0", 64)
	cases := []struct {
		name string
		mode Mode
		wire string
		want string
	}{
		{"empty", StreamSigned, "", "IncompleteBody"},
		{"wrong signature", StreamSigned, "4;chunk-signature=" + sig + "\r\nabcd\r\n", "SignatureDoesNotMatch"},
		{"no signature", StreamSigned, "4\r\nabcd\r\n0\r\n\r\n", "InvalidRequest"},
		{"a short signature", StreamSigned, "4;chunk-signature=00\r\nabcd\r\n", "InvalidRequest"},
		{"a signature on an unsigned chunk", StreamUnsignedTrailer, "4;chunk-signature=" + sig + "\r\nabcd\r\n", "InvalidRequest"},
		{"no size", StreamUnsignedTrailer, "\r\nabcd\r\n", "InvalidRequest"},
		{"a size that is no number", StreamUnsignedTrailer, "xyz\r\nabcd\r\n", "InvalidRequest"},
		{"a negative size", StreamUnsignedTrailer, "-4\r\nabcd\r\n", "InvalidRequest"},
		{"a size of 17 digits", StreamUnsignedTrailer, "00000000000000004\r\nabcd\r\n", "InvalidRequest"},
		{"a size beyond 64 bits", StreamUnsignedTrailer, "ffffffffffffffff\r\nabcd\r\n", "InvalidRequest"},
		{"more than was declared", StreamUnsignedTrailer, "5\r\nabcde\r\n0\r\n\r\n", "IncompleteBody"},
		{"less than was declared", StreamUnsignedTrailer, "3\r\nabc\r\n0\r\n\r\n", "IncompleteBody"},
		{"a chunk longer than its size", StreamUnsignedTrailer, "4\r\nabcdX\r\n0\r\n\r\n", "InvalidRequest"},
		{"an endless size line", StreamUnsignedTrailer, strings.Repeat("0", 2*MaxLine), "InvalidRequest"},
		{"an endless trailer", StreamUnsignedTrailer, "4\r\nabcd\r\n0\r\nx-amz-checksum-crc32:" + strings.Repeat("A", 2*MaxLine), "InvalidRequest"},
		{"many trailers", StreamUnsignedTrailer, "4\r\nabcd\r\n0\r\n" + strings.Repeat("x-amz-checksum-crc32:A\r\n", 2*MaxTrailers) + "\r\n", "MalformedTrailerError"},
		{"an unannounced trailer", StreamUnsignedTrailer, "4\r\nabcd\r\n0\r\nx-amz-meta-a:1\r\n\r\n", "MalformedTrailerError"},
		{"a trailer that is none", StreamUnsignedTrailer, "4\r\nabcd\r\n0\r\nnonsense\r\n\r\n", "MalformedTrailerError"},
		{"a trailer signature on an unsigned body", StreamUnsignedTrailer, "4\r\nabcd\r\n0\r\nx-amz-trailer-signature:" + sig + "\r\n\r\n", "MalformedTrailerError"},
		{"bytes after the end", StreamUnsignedTrailer, "4\r\nabcd\r\n0\r\n\r\nGET / HTTP/1.1\r\n", "InvalidRequest"},
		{"many line ends after the end", StreamUnsignedTrailer, "4\r\nabcd\r\n0\r\n\r\n\r\n\r\n\r\n", "InvalidRequest"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c, _ := grantFor(tc.mode, exampleSeed).NewReader(strings.NewReader(tc.wire), 4, trailerAnnounced)
			defer c.Release()
			got, err := io.ReadAll(c)
			if code(err) != tc.want {
				t.Errorf("read: %v, expected %s", err, tc.want)
			}
			if len(got) > 4 {
				t.Errorf("%d bytes were handed on, 4 were declared", len(got))
			}
			if _, again := c.Read(make([]byte, 1)); again != err {
				t.Errorf("the error is not sticky: %v", again)
			}
			if _, ok := c.Trailer("x-amz-checksum-crc32"); ok {
				t.Error("a trailer of a refused body can be read")
			}
		})
	}
}

func TestASignedTrailerNeedsItsSignature(t *testing.T) {
	good := string(chunked(StreamSignedTrailer, []byte("abcd"), 100))
	at := strings.Index(good, "x-amz-trailer-signature")
	for name, wire := range map[string]string{
		"missing": good[:at] + "\r\n",
		"wrong":   strings.Replace(good, "AAAAAA==", "AAAAAB==", 1),
	} {
		c, _ := grantFor(StreamSignedTrailer, exampleSeed).NewReader(strings.NewReader(wire), 4, trailerAnnounced)
		if _, err := io.ReadAll(c); code(err) != "SignatureDoesNotMatch" {
			t.Errorf("%s trailer signature: %v", name, err)
		}
		c.Release()
	}
}

func TestASignedTrailerMayHaveAnEmptyLineBeforeItsSignature(t *testing.T) {
	wire := string(chunked(StreamSignedTrailer, []byte("abcd"), 100))
	wire = strings.Replace(wire, "AAAAAA==\r\n", "AAAAAA==\n\r\n", 1)
	c, _ := grantFor(StreamSignedTrailer, exampleSeed).NewReader(strings.NewReader(wire), 4, trailerAnnounced)
	defer c.Release()
	if _, err := io.ReadAll(c); err != nil {
		t.Error(err)
	}
}

func TestEmptyTrailerLinesAreBounded(t *testing.T) {
	wire := string(chunked(StreamSignedTrailer, []byte("abcd"), 100))
	wire = strings.Replace(wire, "AAAAAA==\r\n", "AAAAAA==\r\n"+strings.Repeat("\r\n", 2*MaxTrailers), 1)
	c, _ := grantFor(StreamSignedTrailer, exampleSeed).NewReader(strings.NewReader(wire), 4, trailerAnnounced)
	defer c.Release()
	if _, err := io.ReadAll(c); code(err) != "MalformedTrailerError" {
		t.Error(err)
	}
}

func TestModesWithoutChunksHaveNoReader(t *testing.T) {
	for _, m := range []Mode{0, Literal, Unsigned, 99} {
		if _, err := grantFor(m, exampleSeed).NewReader(strings.NewReader(""), 0, nil); err == nil {
			t.Errorf("mode %d got a chunk reader", m)
		}
	}
}

func FuzzChunkReader(f *testing.F) {
	body := []byte("some payload to carry")
	for _, m := range streaming {
		f.Add(chunked(m, body, 7), byte(m), int64(len(body)))
	}
	f.Add([]byte("ffffffffffffffff\r\n"), byte(StreamUnsignedTrailer), int64(4))
	f.Fuzz(func(t *testing.T, wire []byte, m byte, n int64) {
		mode := streaming[int(m)%len(streaming)]
		if n < 0 || n > 1<<20 {
			return
		}
		c, err := grantFor(mode, exampleSeed).NewReader(bytes.NewReader(wire), n, trailerAnnounced)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
		got, err := io.ReadAll(c)
		if err == nil && int64(len(got)) != n {
			t.Fatalf("accepted %d bytes of %d", len(got), n)
		}
		if err == nil && mode != StreamUnsignedTrailer && n > 0 && !bytes.Equal(got, body) {
			t.Fatalf("accepted forged bytes %s", hex.EncodeToString(got))
		}
	})
}

func BenchmarkChunkReaderSigned64KiB(b *testing.B) {
	body := make([]byte, 1<<20)
	wire := chunked(StreamSigned, body, 64<<10)
	buf := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		c, _ := grantFor(StreamSigned, exampleSeed).NewReader(bytes.NewReader(wire), 1<<20, nil)
		for {
			_, err := c.Read(buf)
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		c.Release()
	}
	_ = fmt.Sprint()
}
