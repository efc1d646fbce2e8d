package pki

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Limits of a join.
const (
	joinVersion    = 1
	maxJoinBytes   = 256 << 10
	maxJoinDrives  = 64
	maxJoinMembers = 1024
)

// JoinRequest is what a node without a certificate asks for. RequestID stays the same when it asks again, so that a
// lost reply costs nothing.
type JoinRequest struct {
	Version   uint32      `json:"version"`
	RequestID ident.ID    `json:"request_id"`
	Secret    []byte      `json:"secret"` // Token.Secret
	CSR       []byte      `json:"csr"`    // DER
	Name      string      `json:"name"`
	S3        string      `json:"s3"` // host:port of each listener, as others reach it
	Admin     string      `json:"admin"`
	Internode string      `json:"internode"`
	Gossip    string      `json:"gossip"`
	StartID   ident.ID    `json:"start_id"`
	Drives    []JoinDrive `json:"drives"`
}

// JoinDrive is a data folder of the joiner.
type JoinDrive struct {
	UUID     ident.ID `json:"uuid"`
	Path     string   `json:"path"`
	Capacity uint64   `json:"capacity"` // bytes
}

// JoinReply makes the joiner a member.
type JoinReply struct {
	Version   uint32        `json:"version"`
	ClusterID ident.ID      `json:"cluster_id"`
	Node      ident.Node    `json:"node"`
	Drives    []ident.Drive `json:"drives"` // in the order of the request
	Cert      []byte        `json:"cert"`   // DER
	CACert    []byte        `json:"ca_cert"`
	SealKey   []byte        `json:"seal_key"`
	GossipKey []byte        `json:"gossip_key"`
	Members   []JoinMember  `json:"members"` // of group 0, to start its learner with
	Nodes     []JoinNode    `json:"nodes"`   // where to reach the members
}

// JoinMember is a replica of group 0.
type JoinMember struct {
	Replica uint64      `json:"replica"`
	Node    ident.Node  `json:"node"`
	Drive   ident.Drive `json:"drive"`
	Learner bool        `json:"learner,omitempty"`
}

// JoinNode is a member's address.
type JoinNode struct {
	Node      ident.Node `json:"node"`
	Internode string     `json:"internode"`
	Gossip    string     `json:"gossip"`
}

// NewJoinRequest starts a request under a fresh request id; the caller fills in name, addresses and drives.
func NewJoinRequest(t Token, csrDER []byte) *JoinRequest {
	return &JoinRequest{Version: joinVersion, RequestID: ident.New(), Secret: t.Secret[:], CSR: csrDER}
}

// Encode returns the message for MethodJoin.
func (r *JoinRequest) Encode() ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	return encodeJoin(r)
}

// DecodeJoinRequest reads a request from somebody of whom nothing is known yet.
func DecodeJoinRequest(data []byte) (*JoinRequest, error) {
	r := new(JoinRequest)
	if err := decodeJoin(data, r); err != nil {
		return nil, oerr.Errorf("pki.join", oerr.InvalidArgument, "join request: %w", err)
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	return r, nil
}

// String keeps the secret out of logs.
func (r *JoinRequest) String() string {
	return fmt.Sprintf("join of %.64q at %.80q with %d drives", r.Name, r.Internode, len(r.Drives))
}

func (r *JoinRequest) validate() error {
	const op = "pki.join"
	switch {
	case r.Version != joinVersion:
		return oerr.Errorf(op, oerr.InvalidArgument, "join request: version %d, expected %d", r.Version, joinVersion)
	case r.RequestID.IsZero():
		return oerr.Errorf(op, oerr.InvalidArgument, "join request: no request id")
	case len(r.Secret) != len(Token{}.Secret):
		return oerr.Errorf(op, oerr.InvalidArgument, "join request: secret of %d bytes, expected %d", len(r.Secret), len(Token{}.Secret))
	case len(r.Drives) == 0 || len(r.Drives) > maxJoinDrives:
		return oerr.Errorf(op, oerr.InvalidArgument, "join request: %d drives, need 1 to %d", len(r.Drives), maxJoinDrives)
	}
	return nil
}

// StepID derives the request id of one step of the join (0 for the node, i+1 for drive i). It depends on the secret, so
// that who knows only a request id cannot ask for the answers that its holder got.
func (r *JoinRequest) StepID(step int) ident.ID {
	h := sha256.New()
	h.Write([]byte("objstore join step\x00"))
	h.Write(r.RequestID[:])
	h.Write(r.Secret)
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(step))
	h.Write(n[:])
	var id ident.ID
	copy(id[:], h.Sum(nil))
	return id
}

// Encode returns the reply to MethodJoin.
func (r *JoinReply) Encode() ([]byte, error) {
	r.Version = joinVersion
	return encodeJoin(r)
}

// DecodeJoinReply reads the reply and checks it against the token and the request it answers.
func DecodeJoinReply(data []byte, t Token, drives int) (*JoinReply, error) {
	const op = "pki.join"
	r := new(JoinReply)
	if err := decodeJoin(data, r); err != nil {
		return nil, oerr.Errorf(op, oerr.Internal, "join reply: %w", err)
	}
	switch {
	case r.Version != joinVersion:
		return nil, oerr.Errorf(op, oerr.Internal, "join reply: version %d, expected %d", r.Version, joinVersion)
	case Fingerprint(r.CACert) != t.CA:
		return nil, oerr.Errorf(op, oerr.PermissionDenied, "join reply: its CA certificate is not the one of the token")
	case r.ClusterID.IsZero() || r.Node == 0 || len(r.Drives) != drives:
		return nil, oerr.Errorf(op, oerr.Internal, "join reply: cluster %s, node %d, %d drives, expected %d drives", r.ClusterID, r.Node, len(r.Drives), drives)
	case len(r.Members) == 0 || len(r.Members) > maxJoinMembers || len(r.Nodes) > maxJoinMembers:
		return nil, oerr.Errorf(op, oerr.Internal, "join reply: %d members of group 0 on %d nodes, need 1 to %d", len(r.Members), len(r.Nodes), maxJoinMembers)
	}
	for _, d := range r.Drives {
		if d == 0 {
			return nil, oerr.Errorf(op, oerr.Internal, "join reply: drive number 0")
		}
	}
	return r, nil
}

// String keeps the keys out of logs.
func (r *JoinReply) String() string {
	return fmt.Sprintf("join reply of cluster %s: node %d, drives %v", r.ClusterID, r.Node, r.Drives)
}

func encodeJoin(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, oerr.E("pki.join", oerr.Internal, err)
	}
	if len(b) > maxJoinBytes {
		return nil, oerr.Errorf("pki.join", oerr.InvalidArgument, "join message of %d bytes, at most %d are allowed", len(b), maxJoinBytes)
	}
	return b, nil
}

func decodeJoin(data []byte, v any) error {
	if len(data) > maxJoinBytes {
		return fmt.Errorf("read %d bytes, at most %d are allowed", len(data), maxJoinBytes)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read bytes behind the end of the message")
	}
	return nil
}
