package metadata

import (
	"encoding/binary"
	"strings"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Rows of a group. Group-wide rows are the span table and the dedup window; all others stand under their span's
// prefix, so that one batch covers a mutation and a span moves whole (PROTOCOLS C).
const (
	groupDedup = 'q' // q <epoch 8> <request id>
	groupSpan  = 's' // s <bucket> <start>\0\1
	groupData  = 'x' // x <bucket> <start>\0\1 <tag> …: the span's prefix, then one of the tags below
)

const (
	tagAbandoned = 'a' // <blob>
	tagBlob      = 'b' // <blob> → the row that references it
	tagBody      = 'd' // <version> → inline body
	tagDoneAt    = 'e' // <completed at 8> <upload> → nothing: the order in which f rows are trimmed
	tagDone      = 'f' // <upload> → a completed upload
	tagGarbage   = 'g' // <blob>
	tagCurrent   = 'l' // <key as it is>
	tagParts     = 'm' // <version> <chunk 2> → part list
	tagPart      = 'p' // <upload> <number 2>
	tagRepair    = 'r' // <priority 1> <blob> <index 1>
	tagUpload    = 'u' // <key>\0\1 <upload> → an open upload
	tagVersion   = 'v' // <key>\0\1 <inverted seq 8>
)

// Inside row keys a \0 of the user's key is written \0\xff and its end \0\1: order is kept and no key's encoding is a
// prefix of another's.
const (
	escape     = 0x00
	escapedNul = 0xff
	endOfKey   = 0x01
)

func appendEscaped(b []byte, key string) []byte {
	for {
		i := strings.IndexByte(key, 0)
		if i < 0 {
			return append(b, key...)
		}
		b = append(append(b, key[:i]...), escape, escapedNul)
		key = key[i+1:]
	}
}

func appendKeyPart(b []byte, key string) []byte {
	return append(appendEscaped(b, key), escape, endOfKey)
}

// splitKeyPart undoes appendKeyPart and returns what follows.
func splitKeyPart(b []byte) (key string, rest []byte, err error) {
	var out []byte
	for i := 0; i < len(b); i++ {
		if b[i] != escape {
			out = append(out, b[i])
			continue
		}
		if i++; i == len(b) {
			break
		}
		switch b[i] {
		case escapedNul:
			out = append(out, 0)
		case endOfKey:
			return string(out), b[i+1:], nil
		default:
			return "", nil, oerr.Errorf("metadata.key", oerr.Corrupt, "read byte %#x after \\0 in a row key, expected 0x01 or 0xff", b[i])
		}
	}
	return "", nil, oerr.Errorf("metadata.key", oerr.Corrupt, "row key of %d bytes has no end of its key part", len(b))
}

func spanPrefix(bucket ident.ID, start string) []byte {
	return appendKeyPart(append([]byte{groupData}, bucket[:]...), start)
}

func spanKey(bucket ident.ID, start string) []byte {
	return appendKeyPart(append([]byte{groupSpan}, bucket[:]...), start)
}

func dedupKey(b []byte, epoch uint64, request ident.ID) []byte {
	return append(binary.BigEndian.AppendUint64(append(b, groupDedup), epoch), request[:]...)
}

// splitSpanPrefix reads the span's prefix at the start of a data row's key.
func splitSpanPrefix(key []byte) (bucket ident.ID, start string, rest []byte, err error) {
	if len(key) < 1+len(bucket) || key[0] != groupData {
		return bucket, "", nil, oerr.Errorf("metadata.key", oerr.Corrupt, "row key of %d bytes is not under a span", len(key))
	}
	copy(bucket[:], key[1:])
	start, rest, err = splitKeyPart(key[1+len(bucket):])
	return bucket, start, rest, err
}

// keys builds row keys under one span's prefix in one buffer: each is valid until the next is built.
type keys struct {
	prefix []byte
	buf    []byte
}

func (k *keys) start(tag byte) []byte { return append(append(k.buf[:0], k.prefix...), tag) }

func (k *keys) current(key string) []byte {
	k.buf = append(k.start(tagCurrent), key...)
	return k.buf
}

func (k *keys) version(key string, seq uint64) []byte {
	k.buf = binary.BigEndian.AppendUint64(appendKeyPart(k.start(tagVersion), key), ^seq)
	return k.buf
}

// byID builds the keys of a, b, d, f and g rows.
func (k *keys) byID(tag byte, id ident.ID) []byte {
	k.buf = append(k.start(tag), id[:]...)
	return k.buf
}

// numbered builds the keys of m and p rows.
func (k *keys) numbered(tag byte, id ident.ID, n uint16) []byte {
	k.buf = binary.BigEndian.AppendUint16(append(k.start(tag), id[:]...), n)
	return k.buf
}

func (k *keys) upload(key string, id ident.ID) []byte {
	k.buf = append(appendKeyPart(k.start(tagUpload), key), id[:]...)
	return k.buf
}

func (k *keys) doneAt(at int64, id ident.ID) []byte {
	k.buf = append(binary.BigEndian.AppendUint64(k.start(tagDoneAt), uint64(at)), id[:]...)
	return k.buf
}

func (k *keys) repair(priority uint8, blob ident.ID, index uint8) []byte {
	k.buf = append(append(append(k.start(tagRepair), priority), blob[:]...), index)
	return k.buf
}

// bounds returns the range of all rows with this tag and what follows it, in memory of its own.
func (k *keys) bounds(tag byte, more ...byte) (lower, upper []byte) {
	lower = append(append(append([]byte(nil), k.prefix...), tag), more...)
	return lower, successor(lower)
}

// successor returns the least key greater than every key that begins with prefix, in memory of its own. Prefixes here
// begin with a tag below 0xff, so there is one.
func successor(prefix []byte) []byte {
	b := append([]byte(nil), prefix...)
	for len(b) > 0 && b[len(b)-1] == 0xff {
		b = b[:len(b)-1]
	}
	if len(b) > 0 {
		b[len(b)-1]++
	}
	return b
}
