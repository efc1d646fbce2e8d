// Package ident holds the identifiers that every layer of objstore passes around.
//
// It owns their textual and binary forms and nothing else; it imports only the standard library. All types are
// plain values and safe for concurrent use.
package ident

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// ID is a 128-bit random identifier: of a cluster, a bucket, a blob, a version, an upload or a request.
// The zero ID never names anything.
type ID [16]byte

// New returns a fresh random ID.
func New() ID {
	var id ID
	rand.Read(id[:]) // never fails: crypto/rand aborts the process instead (Go 1.24)
	return id
}

// Parse reads the 32 hexadecimal digits that String writes.
func Parse(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return ID{}, fmt.Errorf("identifier %q: read %d characters, expected 32 hexadecimal digits", s, len(s))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ID{}, fmt.Errorf("identifier %q: %w", s, err)
	}
	return id, nil
}

// String returns 32 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id is the zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// Compare orders IDs bytewise.
func (id ID) Compare(other ID) int { return bytes.Compare(id[:], other[:]) }

// MarshalText and UnmarshalText make IDs readable in JSON.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *ID) UnmarshalText(b []byte) error {
	v, err := Parse(string(b))
	if err == nil {
		*id = v
	}
	return err
}

// Node numbers a node. Group 0 hands the numbers out from 1 up and never uses one twice; 0 names no node.
type Node uint32

// Drive numbers a drive. Group 0 hands the numbers out from 1 up and never uses one twice; 0 names no drive.
type Drive uint32

// Incarnation counts how often a drive was formatted under its number. It starts at 1. What an older incarnation
// held is gone, so an answer from a newer one means "absent", never "not yet".
type Incarnation uint32

// Group numbers a Raft group. 0 is the configuration group, metadata groups start at 1.
type Group uint32

// PG numbers a placement group, from 0 up.
type PG uint32
