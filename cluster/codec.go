package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"objstore/internal/oerr"
)

// Limits of group 0. It is held in memory by every node, so everything in it is bounded.
const (
	FormatVersion     = 1 // of the rows and entries of group 0
	MaxCommandSize    = 256 << 10
	MaxNodes          = 512
	MaxDrivesPerNode  = 64
	MaxBuckets        = 100_000
	MaxTokens         = 128  // live join tokens
	MaxSettings       = 128  // cluster-wide settings
	MaxSettingValue   = 1024 // bytes
	MaxNameLen        = 64   // of a node, bytes
	MaxAddrLen        = 262  // host:port, bytes
	MaxPathLen        = 4096 // of a drive, bytes
	MaxReplicas       = MaxNodes + 8
	MaxPGs            = 16384
	MaxGroups         = 1024
	DedupWindow       = 4096 // request ids remembered
	RetiredBuckets    = 4096 // ids of removed buckets remembered
	DefaultGroupCount = 16   // metadata groups at formation (start)
)

// Encode returns the command as a log entry.
func (c *Command) Encode() ([]byte, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, oerr.E("cluster.encode", oerr.Internal, err)
	}
	if len(b) > MaxCommandSize {
		return nil, oerr.Errorf("cluster.encode", oerr.InvalidArgument, "command %s is %d bytes, at most %d are allowed", c.Op, len(b), MaxCommandSize)
	}
	return b, nil
}

// DecodeCommand reads one log entry. It refuses unknown fields and trailing bytes: an entry that a node understands
// only in part would make its state differ from the others'.
func DecodeCommand(data []byte) (*Command, error) {
	c := new(Command)
	if err := decodeStrict(data, MaxCommandSize, c); err != nil {
		return nil, oerr.Errorf("cluster.decode", oerr.InvalidArgument, "group-0 entry: %w", err)
	}
	return c, nil
}

// String names the command without its secrets.
func (c *Command) String() string {
	return fmt.Sprintf("%s request %s", c.Op, c.RequestID)
}

// GoString keeps %#v from printing secrets.
func (c *Command) GoString() string { return "&cluster.Command{" + c.String() + "}" }

// Encode returns the result as Apply answers it.
func (r CommandResult) Encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, oerr.E("cluster.encode", oerr.Internal, err)
	}
	return b, nil
}

// DecodeResult reads what Apply answered.
func DecodeResult(data []byte) (CommandResult, error) {
	var r CommandResult
	if err := decodeStrict(data, MaxCommandSize, &r); err != nil {
		return CommandResult{}, oerr.Errorf("cluster.decode", oerr.Internal, "group-0 result: %w", err)
	}
	return r, nil
}

// Err returns the refusal as an error of its kind; nil for a success.
func (r CommandResult) Err() error {
	if r.Code == 0 {
		return nil
	}
	return oerr.Errorf("cluster.apply", oerr.Kind(r.Code-1), "%s", r.Detail)
}

func refuse(kind oerr.Kind, format string, args ...any) CommandResult {
	return CommandResult{Code: 1 + uint8(kind), Detail: fmt.Sprintf(format, args...)}
}

// decodeStrict reads exactly one JSON value of at most limit bytes into v.
func decodeStrict(data []byte, limit int, v any) error {
	if len(data) > limit {
		return fmt.Errorf("read %d bytes, at most %d are allowed", len(data), limit)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read bytes behind the end of the value")
	}
	return nil
}
