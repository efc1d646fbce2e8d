package auth

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"strings"
	"sync"

	"objstore/s3/apierr"
)

// Limits of aws-chunked bodies, in bytes.
const (
	// MaxLine bounds a chunk header and a trailer line: the reader's buffer.
	MaxLine = 4 << 10
	// MaxTrailers bounds the trailer lines of one body, empty ones included.
	MaxTrailers = 16
	// maxChunkDigits bounds the hexadecimal chunk size: 5 GiB has nine digits; leading zeros are allowed.
	maxChunkDigits = 16
)

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, MaxLine) }}

// ChunkReader yields the payload of an aws-chunked body. Bytes are handed on as they come; the verdict on a chunk's
// signature comes with its last byte, as an error of Read. So nothing that was read may become visible before Read has
// returned io.EOF: by then every chunk, the total length and the trailers were verified.
type ChunkReader struct {
	g        *Grant
	br       *bufio.Reader
	expected int64 // x-amz-decoded-content-length
	total    int64
	left     int64 // of the current chunk
	inChunk  bool
	sum      hash.Hash // of the current chunk; nil when chunks are unsigned
	want     [64]byte  // the current chunk's signature
	prev     [64]byte
	announce []string // trailer names of x-amz-trailer, lower case
	trailers []Param
	err      error // sticky; io.EOF after success
}

// NewReader reads an aws-chunked body of the grant's streaming mode; decoded is x-amz-decoded-content-length and
// announced the names in x-amz-trailer. Call Release when done.
func (g *Grant) NewReader(body io.Reader, decoded int64, announced []string) (*ChunkReader, error) {
	c := &ChunkReader{g: g, expected: decoded, prev: g.signature, announce: announced}
	switch g.Mode {
	case StreamSigned, StreamSignedTrailer:
		c.sum = sha256.New()
	case StreamUnsignedTrailer:
	default:
		return nil, apierr.Errorf(apierr.InternalError, "mode %d has no chunks", g.Mode)
	}
	c.br = readers.Get().(*bufio.Reader)
	c.br.Reset(body)
	return c, nil
}

// Release gives the buffer back; Read fails from then on.
func (c *ChunkReader) Release() {
	if c.br != nil {
		c.br.Reset(nil)
		readers.Put(c.br)
		c.br = nil
		if c.err == nil {
			c.err = errors.New("s3/auth: the chunk reader was released")
		}
	}
}

// Trailer returns a verified trailer by its lower-case name, once Read has returned io.EOF.
func (c *ChunkReader) Trailer(name string) (string, bool) {
	if c.err != io.EOF {
		return "", false
	}
	for _, t := range c.trailers {
		if t.Name == name {
			return t.Value, true
		}
	}
	return "", false
}

// Finish reads what is left, which must be no payload, and returns the verdict on the whole body.
func (c *ChunkReader) Finish() error {
	var b [1]byte
	n, err := c.Read(b[:])
	if n > 0 {
		c.err = apierr.New(apierr.IncompleteBody)
		return c.err
	}
	if err == io.EOF {
		return nil
	}
	return err
}

func (c *ChunkReader) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !c.inChunk {
		if err := c.header(); err != nil {
			return 0, c.fail(err)
		}
		if c.left == 0 {
			if err := c.end(); err != nil {
				return 0, c.fail(err)
			}
			return 0, c.fail(io.EOF)
		}
		c.inChunk = true
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.br.Read(p)
	if c.sum != nil {
		c.sum.Write(p[:n])
	}
	c.left -= int64(n)
	c.total += int64(n)
	if c.left == 0 {
		c.inChunk = false
		if err := c.endChunk(); err != nil {
			return n, c.fail(err)
		}
		return n, nil
	}
	if err != nil {
		return n, c.fail(short(err))
	}
	return n, nil
}

func (c *ChunkReader) fail(err error) error {
	c.err = err
	return err
}

func short(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return apierr.Errorf(apierr.IncompleteBody, "The request body terminated unexpectedly")
	}
	return err
}

func malformed(what string) error {
	return apierr.Errorf(apierr.InvalidRequest, "the aws-chunked body is malformed: %s", what)
}

// line reads one line without its end; it is valid until the next read.
func (c *ChunkReader) line() ([]byte, error) {
	b, err := c.br.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		return nil, malformed("a line is too long")
	}
	if err != nil {
		return b, err
	}
	return bytes.TrimSuffix(b[:len(b)-1], []byte{'\r'}), nil
}

// header reads "size[;chunk-signature=hex]".
func (c *ChunkReader) header() error {
	b, err := c.line()
	if err != nil {
		return short(err)
	}
	size, ext, hasExt := bytes.Cut(b, []byte{';'})
	if len(size) == 0 || len(size) > maxChunkDigits {
		return malformed("a chunk size is not 1 to 16 hexadecimal digits")
	}
	var n uint64
	for _, d := range size {
		x := unhex(d)
		if x > 15 || n>>59 != 0 {
			return malformed("a chunk size is not a hexadecimal number")
		}
		n = n<<4 | uint64(x)
	}
	if n > uint64(c.expected-c.total) {
		return apierr.Errorf(apierr.IncompleteBody, "The chunks hold more than x-amz-decoded-content-length")
	}
	c.left = int64(n)
	if c.sum == nil {
		if hasExt {
			return malformed("an unsigned chunk has an extension")
		}
		return nil
	}
	sig, ok := bytes.CutPrefix(ext, []byte("chunk-signature="))
	if !ok || len(sig) != 64 {
		return malformed("a chunk has no chunk-signature of 64 digits")
	}
	copy(c.want[:], sig)
	c.sum.Reset()
	return nil
}

// endChunk verifies a chunk whose last byte was read, and takes the line end that follows it.
func (c *ChunkReader) endChunk() error {
	if err := c.verifyChunk(); err != nil {
		return err
	}
	return c.crlf()
}

func (c *ChunkReader) crlf() error {
	for _, want := range [...]byte{'\r', '\n'} {
		b, err := c.br.ReadByte()
		if err != nil {
			return short(err)
		}
		if b != want {
			return malformed("a chunk is longer than its size says")
		}
	}
	return nil
}

// verifyChunk checks the current chunk against the chain of signatures.
func (c *ChunkReader) verifyChunk() error {
	if c.sum == nil {
		return nil
	}
	var sum [32]byte
	c.sum.Sum(sum[:0])
	got := c.chain("AWS4-HMAC-SHA256-PAYLOAD\n", EmptySHA256+"\n", &sum)
	if subtle.ConstantTimeCompare(got[:], c.want[:]) != 1 {
		return apierr.Errorf(apierr.SignatureDoesNotMatch, "The chunk signature that the server calculated does not match the one in the body.")
	}
	c.prev = got
	return nil
}

func (c *ChunkReader) chain(kind, extra string, sum *[32]byte) [64]byte {
	var stack [384]byte
	s := append(stack[:0], kind...)
	s = append(s, c.g.iso...)
	s = append(s, '\n')
	s = append(s, c.g.scope...)
	s = append(s, '\n')
	s = append(s, c.prev[:]...)
	s = append(s, '\n')
	s = append(s, extra...)
	s = hex.AppendEncode(s, sum[:])
	return signHex(&c.g.key, s)
}

// end reads what follows the last, empty chunk.
func (c *ChunkReader) end() error {
	if c.total != c.expected {
		return apierr.New(apierr.IncompleteBody)
	}
	if err := c.verifyChunk(); err != nil {
		return err
	}
	if c.g.Mode.Trailing() {
		if err := c.readTrailers(); err != nil {
			return err
		}
	}
	// A few clients leave the last line end out, or send it twice; anything else is not part of this body.
	for range 4 {
		b, err := c.br.ReadByte()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return short(err)
		}
		if b != '\r' && b != '\n' {
			break
		}
	}
	return malformed("bytes follow the last chunk")
}

// readTrailers reads "name:value" lines up to an empty line or the end, and verifies them.
func (c *ChunkReader) readTrailers() error {
	var canonical []byte
	signature := ""
	for n := 0; ; n++ {
		b, err := c.line()
		if err != nil && (err != io.EOF || len(b) > 0) {
			return short(err)
		}
		if err == io.EOF {
			break
		}
		if n == MaxTrailers {
			return apierr.Errorf(apierr.MalformedTrailer, "the body has more than %d trailer lines", MaxTrailers)
		}
		if len(b) == 0 {
			if c.sum != nil && signature == "" {
				continue // AWS's example and minio-go put an empty line before the signature
			}
			break
		}
		name, value, ok := strings.Cut(string(b), ":")
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
		if !ok || name == "" || signature != "" {
			return apierr.New(apierr.MalformedTrailer)
		}
		if name == "x-amz-trailer-signature" {
			signature = value
			continue
		}
		if err := c.addTrailer(name, value); err != nil {
			return err
		}
		canonical = append(append(append(append(canonical, name...), ':'), value...), '\n')
	}
	return c.verifyTrailers(canonical, signature)
}

func (c *ChunkReader) addTrailer(name, value string) error {
	announced := false
	for _, a := range c.announce {
		announced = announced || a == name
	}
	for _, t := range c.trailers {
		announced = announced && t.Name != name
	}
	if !announced {
		return apierr.Errorf(apierr.MalformedTrailer, "the trailer %q was not announced in x-amz-trailer, or came twice", name)
	}
	c.trailers = append(c.trailers, Param{name, value})
	return nil
}

func (c *ChunkReader) verifyTrailers(canonical []byte, signature string) error {
	if c.sum == nil {
		if signature != "" {
			return apierr.Errorf(apierr.MalformedTrailer, "an unsigned body has an x-amz-trailer-signature")
		}
		return nil
	}
	sum := sha256.Sum256(canonical)
	got := c.chain("AWS4-HMAC-SHA256-TRAILER\n", "", &sum)
	if subtle.ConstantTimeCompare(got[:], []byte(signature)) != 1 {
		return apierr.Errorf(apierr.SignatureDoesNotMatch, "The trailer signature that the server calculated does not match the one in the body.")
	}
	return nil
}
