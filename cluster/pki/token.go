package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"objstore/internal/oerr"
)

// tokenPrefix starts a join token: objt1.<64 hex digits: SHA-256 of the CA certificate>.<64 hex digits: secret>.
const tokenPrefix = "objt1"

// Token is a one-time join token: by CA the joiner knows the cluster, by Secret the cluster knows the joiner. Group 0
// keeps only the secret's hash.
type Token struct {
	CA     [sha256.Size]byte // fingerprint of the CA certificate
	Secret [32]byte
}

// NewToken makes a token for the cluster with this CA certificate.
func NewToken(caCertDER []byte) Token {
	t := Token{CA: Fingerprint(caCertDER)}
	rand.Read(t.Secret[:])
	return t
}

// ParseToken reads what Text writes; white space around it is dropped, as files end in a line break.
func ParseToken(s string) (Token, error) {
	var t Token
	parts := strings.Split(strings.TrimSpace(s), ".")
	if len(parts) != 3 || parts[0] != tokenPrefix || !unhex(t.CA[:], parts[1]) || !unhex(t.Secret[:], parts[2]) {
		// The text of the error must not repeat what may be a secret.
		return Token{}, oerr.Errorf("pki.parse_token", oerr.InvalidArgument, "read %d characters that are no join token, expected %s.<64 hex digits>.<64 hex digits>", len(s), tokenPrefix)
	}
	return t, nil
}

func unhex(dst []byte, s string) bool {
	if len(s) != 2*len(dst) {
		return false
	}
	_, err := hex.Decode(dst, []byte(s))
	return err == nil
}

// Text returns the token as it is handed to an operator. It is a secret.
func (t Token) Text() string {
	return tokenPrefix + "." + hex.EncodeToString(t.CA[:]) + "." + hex.EncodeToString(t.Secret[:])
}

// Hash is what group 0 keeps of the token: the hex SHA-256 of its secret.
func (t Token) Hash() string { return HashSecret(t.Secret[:]) }

// HashSecret is Hash for whoever has only the secret.
func HashSecret(secret []byte) string {
	h := sha256.Sum256(secret)
	return hex.EncodeToString(h[:])
}

// String keeps the token out of logs.
func (t Token) String() string { return "**redacted join token**" }

// GoString keeps the token out of %#v.
func (t Token) GoString() string { return t.String() }
