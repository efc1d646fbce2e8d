// Package pki is who is who in a cluster: the cluster CA made at init (ca.go), node certificates that carry cluster id,
// role and node number in a URI SAN (cert.go), mutual TLS 1.3 over them (tls.go), one-time join tokens that pin the CA
// (token.go), the messages of a join (join.go), the sealing of the CA key in group 0 (seal.go), and a node's credentials
// on disk (file.go).
//
// It must not import cluster: identities are below the model. Everything here is safe for concurrent use once made.
//
// What is not here: revocation lists. A removed node's certificate stays valid until it expires, so listeners are given
// an allow function that reads group 0.
package pki
