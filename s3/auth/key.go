package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
)

// maxKeys bounds the cache of signing keys; when it is full it starts anew (a key costs four HMACs to derive).
const maxKeys = 1024

type keyID struct{ accessKey, day string }

type derived struct {
	secret string
	key    [32]byte
}

// keyCache remembers derived signing keys by access key and day; region and service are fixed. It is only asked
// with a secret that was looked up for this request, so a revoked or changed secret is never served from it.
type keyCache struct {
	region string
	mu     struct {
		sync.Mutex
		keys map[keyID]derived
	}
}

func (k *keyCache) get(accessKey, secret, day string) [32]byte {
	k.mu.Lock()
	d, ok := k.mu.keys[keyID{accessKey, day}]
	k.mu.Unlock()
	if ok && d.secret == secret {
		return d.key
	}
	key := SigningKey(secret, day, k.region)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.keys == nil || len(k.mu.keys) >= maxKeys {
		k.mu.keys = make(map[keyID]derived)
	}
	k.mu.keys[keyID{strings.Clone(accessKey), strings.Clone(day)}] = derived{secret, key}
	return key
}

// SigningKey derives the key that signs requests of one day in one region.
func SigningKey(secret, day, region string) [32]byte {
	key := sign([]byte("AWS4"+secret), day)
	key = sign(key[:], region)
	key = sign(key[:], service)
	return sign(key[:], terminator)
}

func sign(key []byte, data string) (sum [32]byte) {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(data))
	h.Sum(sum[:0])
	return sum
}

// signHex signs with the bytes in place and returns 64 hexadecimal digits.
func signHex(key *[32]byte, data []byte) (out [64]byte) {
	h := hmac.New(sha256.New, key[:])
	h.Write(data)
	var sum [32]byte
	hex.Encode(out[:], h.Sum(sum[:0]))
	return out
}
