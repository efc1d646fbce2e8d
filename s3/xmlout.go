package s3

import (
	"strconv"
	"sync"
	"time"

	"objstore/s3/auth"
)

const (
	xmlHeader = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"
	xmlNS     = ` xmlns="http://s3.amazonaws.com/doc/2006-03-01/"`
	// maxXMLBuf is the largest buffer that is kept: a page of 1,000 entries has about 300 KiB.
	maxXMLBuf = 1 << 20
)

var xmlBufs = sync.Pool{New: func() any { return &xmlBuf{b: make([]byte, 0, 4<<10)} }}

// xmlBuf is an XML document being written. By hand, because a page of 1,000 keys costs 0.3 ms so and 1.2 ms with
// encoding/xml (PROTOCOLS I).
type xmlBuf struct {
	b   []byte
	url bool // encoding-type=url: names are percent-encoded
	day int64
	ymd [11]byte // "2006-01-02T" of day
}

func newXML() *xmlBuf {
	x := xmlBufs.Get().(*xmlBuf)
	x.b = append(x.b[:0], xmlHeader...)
	x.url, x.day = false, -1<<62
	return x
}

func (x *xmlBuf) release() {
	if cap(x.b) <= maxXMLBuf {
		xmlBufs.Put(x)
	}
}

// raw appends markup.
func (x *xmlBuf) raw(s string) { x.b = append(x.b, s...) }

// elem appends an element with text.
func (x *xmlBuf) elem(name, text string) {
	x.open(name)
	x.text(text)
	x.close(name)
}

// opt appends an element if there is text.
func (x *xmlBuf) opt(name, text string) {
	if text != "" {
		x.elem(name, text)
	}
}

// name appends an element whose text is a key, prefix or delimiter: percent-encoded if the client asked for it.
func (x *xmlBuf) name(name, text string) {
	x.open(name)
	x.key(text)
	x.close(name)
}

func (x *xmlBuf) key(text string) {
	if x.url {
		x.b = auth.AppendEscaped(x.b, text, true)
		return
	}
	x.text(text)
}

func (x *xmlBuf) int(name string, n int64) {
	x.open(name)
	x.b = strconv.AppendInt(x.b, n, 10)
	x.close(name)
}

func (x *xmlBuf) bool(name string, v bool) {
	x.open(name)
	x.b = strconv.AppendBool(x.b, v)
	x.close(name)
}

func (x *xmlBuf) open(name string) {
	x.b = append(x.b, '<')
	x.b = append(x.b, name...)
	x.b = append(x.b, '>')
}

func (x *xmlBuf) close(name string) {
	x.b = append(x.b, '<', '/')
	x.b = append(x.b, name...)
	x.b = append(x.b, '>')
}

// etag appends an ETag element with its quotes.
func (x *xmlBuf) etag(etag string) {
	x.raw("<ETag>&quot;")
	x.text(etag)
	x.raw("&quot;</ETag>")
}

const hexDigits = "0123456789abcdef"

// text appends escaped text. Characters that XML 1.0 cannot hold are written as references, as AWS does: a parser may
// refuse them, which is why encoding-type=url exists.
func (x *xmlBuf) text(s string) {
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '&' && c != '<' && c != '>' && c != '"' && c != 0x7f && c != 0xef {
			continue
		}
		var esc string
		switch {
		case c == '&':
			esc = "&amp;"
		case c == '<':
			esc = "&lt;"
		case c == '>':
			esc = "&gt;"
		case c == '"':
			esc = "&quot;"
		case c < ' ' || c == 0x7f:
			esc = ""
		case c == 0xef && i+2 < len(s) && s[i+1] == 0xbf && s[i+2] >= 0xbe: // U+FFFE, U+FFFF
			x.b = append(x.b, s[start:i]...)
			x.b = append(x.b, "&#xfff"...)
			x.b = append(x.b, hexDigits[s[i+2]-0xb0], ';')
			i += 2
			start = i + 1
			continue
		default:
			continue
		}
		x.b = append(x.b, s[start:i]...)
		if esc == "" {
			x.b = append(x.b, "&#x"...)
			x.b = strconv.AppendUint(x.b, uint64(s[i]), 16)
			x.b = append(x.b, ';')
		} else {
			x.b = append(x.b, esc...)
		}
		start = i + 1
	}
	x.b = append(x.b, s[start:]...)
}

const dayMillis = 24 * 60 * 60 * 1000

// time appends an element with a time in ISO 8601 with milliseconds. The date is kept from one entry to the next.
func (x *xmlBuf) time(name string, ms int64) {
	day := ms / dayMillis
	if ms < 0 && ms%dayMillis != 0 {
		day--
	}
	if day != x.day {
		x.day = day
		time.UnixMilli(ms).UTC().AppendFormat(x.ymd[:0], "2006-01-02T")
	}
	rest := int(ms - day*dayMillis)
	x.open(name)
	x.b = append(x.b, x.ymd[:]...)
	x.two(rest / 3600000)
	x.b = append(x.b, ':')
	x.two(rest / 60000 % 60)
	x.b = append(x.b, ':')
	x.two(rest / 1000 % 60)
	x.b = append(x.b, '.', byte('0'+rest/100%10), byte('0'+rest/10%10), byte('0'+rest%10), 'Z')
	x.close(name)
}

func (x *xmlBuf) two(n int) { x.b = append(x.b, byte('0'+n/10), byte('0'+n%10)) }
