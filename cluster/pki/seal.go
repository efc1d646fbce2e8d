package pki

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// SealKeySize is the length of a seal key, in bytes.
const SealKeySize = 32

const sealVersion = 1

// NewSealKey makes the key that seals the CA key in group 0. It is made at init, handed to each node at its join, and
// stands only in the nodes' credential files: logs, snapshots and rows of group 0 hold nothing that issues certificates.
func NewSealKey() []byte {
	k := make([]byte, SealKeySize)
	rand.Read(k)
	return k
}

// Seal encrypts a secret of the cluster: version, AES-256-GCM nonce, ciphertext; the cluster id is authenticated.
func Seal(key []byte, cluster ident.ID, secret []byte) ([]byte, error) {
	aead, err := sealer(key)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 1+aead.NonceSize(), 1+aead.NonceSize()+len(secret)+aead.Overhead())
	out[0] = sealVersion
	rand.Read(out[1:])
	return aead.Seal(out, out[1:], secret, cluster[:]), nil
}

// Unseal is the inverse of Seal.
func Unseal(key []byte, cluster ident.ID, sealed []byte) ([]byte, error) {
	const op = "pki.unseal"
	aead, err := sealer(key)
	if err != nil {
		return nil, err
	}
	n := aead.NonceSize()
	if len(sealed) < 1+n+aead.Overhead() || sealed[0] != sealVersion {
		return nil, oerr.Errorf(op, oerr.Corrupt, "sealed secret: read %d bytes, expected version %d and at least %d bytes", len(sealed), sealVersion, 1+n+aead.Overhead())
	}
	secret, err := aead.Open(nil, sealed[1:1+n], sealed[1+n:], cluster[:])
	if err != nil {
		return nil, oerr.Errorf(op, oerr.Corrupt, "sealed secret: the seal key or the cluster is another one: %w", err)
	}
	return secret, nil
}

func sealer(key []byte) (cipher.AEAD, error) {
	if len(key) != SealKeySize {
		return nil, oerr.Errorf("pki.seal", oerr.InvalidArgument, "seal key of %d bytes, expected %d", len(key), SealKeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, oerr.E("pki.seal", oerr.Internal, err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, oerr.E("pki.seal", oerr.Internal, err)
	}
	return aead, nil
}
