// Package e2e runs the real binary as whole clusters on this machine: real S3 clients, killed and paused processes,
// damaged shards, power loss under real file systems. Everything is started by the tests and ended by pid. It imports
// nothing of objstore.
package e2e
