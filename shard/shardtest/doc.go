// Package shardtest is the one conformance and fault suite that every shard.Endpoint passes, whatever carries the
// bytes: Run drives it. It also has Mem, a small endpoint in memory with switches for every fault a node or drive can
// show, and Cluster, a shard.Dialer over several of them; transports use them as the far side, the object engine and
// repair as drives.
//
// It is for tests. It imports nothing above shard. Everything exported is safe for concurrent use unless it says
// otherwise.
//
//	mem.go      Mem: drives and shards in memory
//	writer.go   its writer
//	fault.go    calls, fault functions, ready-made faults
//	cluster.go  Cluster: node i has drive i
//	suite.go    Run, Factory and what the cases share
//	case_*.go   the cases
package shardtest
