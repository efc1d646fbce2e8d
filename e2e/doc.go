// Package e2e runs the real binary as whole clusters on this machine: real S3 clients, killed and paused processes,
// damaged shards, power loss under real file systems. Everything is started by the tests and ended by pid. Of
// objstore it imports internal/sigv4 only: what judges a history needs a client that never retries.
package e2e
